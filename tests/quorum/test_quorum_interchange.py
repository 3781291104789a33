"""A log directory changes hands: what Barnabas wrote Apache Kafka serves, and the other way round, and back again.

The same properties file for both, so nothing but the program differs: metadata, topics, records, committed offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.anchor import AnchorKafka
from support.broker_process import BrokerProcess
from support.processes import ServerProcess, wait_until
from support.tools import CONFIGS, CONSOLE_CONSUMER, CONSOLE_PRODUCER, CONSUMER_GROUPS, TOPICS, StockTools

pytestmark = [pytest.mark.stock, pytest.mark.slow]

GROUP = "readers"


class Owners:
    """Two programs that take turns on one directory."""

    def __init__(self, directory: Path, tools: StockTools) -> None:
        self.ours = BrokerProcess(directory / "node")
        self.kafka = AnchorKafka(directory / "kafka", tools=tools)
        self.kafka.properties_path = self.ours.properties_path
        self.kafka.data_dir = self.ours.data_dir
        self.kafka.port = self.ours.port
        self.kafka.command[-1] = str(self.ours.properties_path)

    def close(self) -> None:
        self.ours.close()
        self.kafka.close()


@pytest.fixture
def owners(tmp_path: Path, stock_tools: StockTools) -> Iterator[Owners]:
    made = Owners(tmp_path, stock_tools)
    try:
        yield made
    finally:
        made.close()


class Shop:
    """What a user does with the cluster, with the stock tools."""

    def __init__(self, server: ServerProcess, tools: StockTools) -> None:
        self._at = ("--bootstrap-server", server.bootstrap)
        self._tools = tools

    def create(self, topic: str, *more: str) -> None:
        result = self._tools.run(TOPICS, *self._at, "--create", "--topic", topic, *more)
        assert result.code == 0, result

    def describe(self, topic: str) -> str:
        """Without the leader's epochs, which grow with every start."""
        wait_until(lambda: "Leader: 1" in self._described(topic), 20, f"{topic} has a leader")
        return self._described(topic).replace("\t", " ")

    def _described(self, topic: str) -> str:
        result = self._tools.run(TOPICS, *self._at, "--describe", "--topic", topic)
        return result.out if result.code == 0 else ""

    def configure(self, topic: str, setting: str) -> None:
        result = self._tools.run(CONFIGS, *self._at, "--alter", "--topic", topic, "--add-config", setting)
        assert result.code == 0, result

    def configs(self, topic: str) -> str:
        return self._tools.run(CONFIGS, *self._at, "--describe", "--topic", topic).out

    def send(self, topic: str, values: list[str]) -> None:
        text = "".join(f"{value}\n" for value in values)
        result = self._tools.run(CONSOLE_PRODUCER, *self._at, "--topic", topic, stdin=text)
        assert result.code == 0 and not result.err, result

    def read(self, topic: str, count: int, *more: str) -> list[str]:
        result = self._tools.run(
            CONSOLE_CONSUMER,
            *(*self._at, "--topic", topic, "--max-messages", str(count), "--timeout-ms", "20000", *more),
        )
        assert len(result.lines) == count, result
        return result.lines

    def committed(self) -> list[str]:
        lines = self._tools.run(CONSUMER_GROUPS, *self._at, "--describe", "--group", GROUP).lines
        return [" ".join(line.split()[:5]) for line in lines if line.startswith(GROUP)]


@pytest.mark.parametrize("first", ["Barnabas", "Apache Kafka"])
def test_a_directory_changes_hands_and_comes_back(owners: Owners, stock_tools: StockTools, first: str) -> None:
    turns = [owners.ours, owners.kafka] if first == "Barnabas" else [owners.kafka, owners.ours]
    sent: list[str] = []
    described = configured = ""
    committed: list[str] = []
    for turn, server in enumerate([*turns, turns[0]]):
        server.start()
        shop = Shop(server, stock_tools)
        if turn == 0:
            shop.create("goods", "--partitions", "1", "--config", "retention.ms=1234567890")
        else:
            assert shop.describe("goods") == described
            assert shop.configs("goods") == configured
            assert shop.committed() == committed
            assert shop.read("goods", len(sent), "--from-beginning") == sent
            # The group goes on where it was: nothing is left for it but what is sent now.
        new = [f"turn {turn} record {number}" for number in range(10)]
        shop.send("goods", new)
        sent += new
        assert shop.read("goods", 10, "--group", GROUP, *(["--from-beginning"] if turn == 0 else [])) == new
        shop.create(f"topic-of-turn-{turn}", "--partitions", "2")
        shop.configure("goods", f"segment.ms={100_000_000 + turn}")
        described, configured, committed = shop.describe("goods"), shop.configs("goods"), shop.committed()
        assert committed and committed[0].startswith(f"{GROUP} goods 0 {len(sent)} {len(sent)}")
        assert server.terminate(60) in (0, 143)
