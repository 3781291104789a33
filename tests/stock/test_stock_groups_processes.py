"""Groups with the stock tools as true processes: the console consumer killed and stopped, warnings, formatters."""

from __future__ import annotations

import itertools
import json
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from support.anchor import AnchorKafka
from support.broker_process import BrokerProcess
from support.group_requests import commit, consumer_beat, consumer_join, join, sync
from support.processes import wait_until
from support.scenario import Server
from support.talk import Talk
from support.tools import CONSOLE_CONSUMER, CONSUMER_GROUPS, StockTools, ToolResult, java_command, run_process

pytestmark = pytest.mark.stock

PARTITIONS = 3
START_S = 60  # JVMs on two busy cores
FORMATTERS = "org.apache.kafka.tools.consumer"

_RECORD = re.compile(r"^Partition:(\d+)\tOffset:(\d+)\t(\d+)$", re.MULTILINE)


class ConsoleConsumerProcess:
    """`kafka-console-consumer --group`, its output in a file."""

    def __init__(self, server: Server, topic: str, group: str, path: Path) -> None:
        self.path = path
        properties = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "500", "auto.commit.interval.ms": "200"}
        command = [*java_command(), CONSOLE_CONSUMER, "--bootstrap-server", server.bootstrap]
        command += ["--topic", topic, "--group", group, "--from-beginning"]
        for name, value in properties.items():
            command += ["--command-property", f"{name}={value}"]
        for name in ("print.partition", "print.offset"):
            command += ["--formatter-property", f"{name}=true"]
        with open(path, "wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)

    @property
    def seen(self) -> list[tuple[int, int]]:
        """(partition, offset) of every record it printed."""
        return [(int(partition), int(offset)) for partition, offset, _ in _RECORD.findall(self.path.read_text())]

    @property
    def partitions(self) -> set[int]:
        return {partition for partition, _ in self.seen}

    def end(self, how: signal.Signals) -> None:
        self.process.send_signal(how)
        self.process.wait(30)


class Trickle:
    """A producer that never pauses: one record per partition every 20 ms."""

    def __init__(self, server: Server, topic: str) -> None:
        self.sent: list[tuple[int, int]] = []
        self._producer = KafkaProducer(bootstrap_servers=server.bootstrap, acks="all")
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for number in itertools.count():
            for partition in range(PARTITIONS):
                done = self._producer.send(self._topic, value=b"%d" % number, partition=partition).get(30)
                self.sent.append((done.partition, done.offset))
            if self._stop.wait(0.02):
                return

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)
        self._producer.close()


def share_and_survive(server: Server, topic: str, directory: Path) -> None:
    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
    admin.create_topics({topic: {"num_partitions": PARTITIONS}}, wait_for_metadata=True)
    admin.close()
    trickle = Trickle(server, topic)
    members = [ConsoleConsumerProcess(server, topic, f"{topic}-group", directory / f"{n}.out") for n in range(3)]
    killed, stopped, last = members
    try:
        # Whoever starts first reads everything for a moment; shared means that each reads new records of one partition.
        def sharing(of: list[ConsoleConsumerProcess]) -> Callable[[], bool]:
            begin = [len(member.seen) for member in of]

            def owners() -> bool:
                recent = [{p for p, _ in member.seen[start:]} for member, start in zip(of, begin, strict=True)]
                if (
                    all(recent)
                    and sum(map(len, recent)) == PARTITIONS
                    and set().union(*recent) == set(range(PARTITIONS))
                ):
                    return True
                begin[:] = [len(member.seen) for member in of]
                return False

            pace = threading.Event()

            def later() -> bool:
                pace.wait(0.3)  # a few records of each partition per look
                return owners()

            return later

        wait_until(sharing(members), START_S, "three processes share three partitions")
        killed.end(signal.SIGKILL)
        wait_until(sharing([stopped, last]), 20, "two processes take over after the session timeout")
        stopped.end(signal.SIGTERM)
        wait_until(sharing([last]), 20, "one process takes over at once")
        trickle.stop()
        wait_until(lambda: set(trickle.sent) <= {r for m in members for r in m.seen}, 20, "everything was read")
        last.end(signal.SIGTERM)
    finally:
        for member in members:
            if member.process.poll() is None:
                member.process.kill()
                member.process.wait()
    assert set(trickle.sent) == {record for member in members for record in member.seen}
    clean = [record for member in (stopped, last) for record in member.seen]
    assert len(clean) == len(set(clean)), "a record of a cleanly stopped member was seen twice"


@pytest.mark.slow
def test_three_console_consumers_one_killed_one_stopped(broker: BrokerProcess, tmp_path: Path) -> None:
    share_and_survive(broker, "shared-by-three", tmp_path)


def test_clamped_offsets_are_warned_of(anchor: AnchorKafka, broker: BrokerProcess) -> None:
    """--shift-by beyond either end and --to-offset beyond the end: the tool warns and takes the end."""
    transcripts = []
    for server in (anchor, broker):
        with Talk(server.port) as talk:
            talk.find_coordinator("any")
            talk.create_topic("clamped", 2)
            talk.wire.ask(commit("clamped-group", "clamped", 0, 1, offset=0), 9)
        producer = KafkaProducer(bootstrap_servers=server.bootstrap)
        for partition in (0, 1):
            for number in range(4):
                producer.send("clamped", value=b"%d" % number, partition=partition).get(30)
        producer.close()
        arguments = ["--bootstrap-server", server.bootstrap, "--reset-offsets", "--group", "clamped-group"]
        arguments += ["--topic", "clamped", "--execute"]
        runs = [
            run_process(CONSUMER_GROUPS, *arguments, *how, warnings=True)
            for how in (("--shift-by", "9"), ("--shift-by", "-9"))
        ]
        transcripts.append([sorted((run.out + run.err).splitlines()) for run in runs])
    theirs, ours = transcripts
    assert ours == theirs
    assert any("WARN New offset (9) is higher" in line for line in ours[0]), ours
    assert any("WARN New offset (-5) is lower" in line for line in ours[1]), ours


@pytest.fixture(scope="module")
def groups_on_both(anchor: AnchorKafka, broker: BrokerProcess) -> Iterator[tuple[Server, Server]]:
    """The same groups on both servers: a simple one, a classic one with a member, one of the consumer protocol."""
    for server in (anchor, broker):
        with Talk(server.port) as talk:
            talk.find_coordinator("any")
            talk.create_topic("formatted", 2)
            talk.wire.ask(commit("formatted-simple", "formatted", 0, 1, offset=7, metadata="a note"), 9)
            joined = talk.wire.ask(join("formatted-classic", topics=("formatted",)), 3)
            member, generation = joined.member_id, joined.generation_id
            talk.wire.ask(sync("formatted-classic", member, generation, assigned=(member,)), 2)
            good = commit("formatted-classic", "formatted", 1, offset=3, member=member, generation=generation)
            talk.wire.ask(good, 9)
            talk.wire.ask(consumer_join("formatted-consumer", "AAAAAAAAQAC000000000fA", "formatted"), 1)
            talk.wire.ask(consumer_beat("formatted-consumer", "AAAAAAAAQAC000000000fA", -1), 1)
    yield anchor, broker


def formatted(result: ToolResult) -> list[str]:
    """The records of our groups, without what two servers may differ in."""
    records = []
    decoder, position, end = json.JSONDecoder(), 0, len(result.out.rstrip())
    while position < end:  # one after the other, with nothing in between
        record, position = decoder.raw_decode(result.out, position)
        key = record["key"]["data"]
        if not str(key.get("group")).startswith("formatted"):
            continue
        text = json.dumps(record, sort_keys=True)
        text = re.sub(r'("(?:commit|current|expire)\w*[tT]imestamp": )\d{13}', r"\1<time>", text)
        text = re.sub(r"wire-test-[0-9a-f-]{36}", "<member>", text)
        records.append(re.sub(r'("topicId": )"[\w-]{22}"', r'\1"<id>"', text))
    return records


@pytest.mark.parametrize("formatter", ["OffsetsMessageFormatter", "GroupMetadataMessageFormatter"])
def test_formatters_print_our_records(
    formatter: str, stock_tools: StockTools, groups_on_both: tuple[Server, Server]
) -> None:
    transcripts = []
    for server in groups_on_both:
        result = stock_tools.run(
            CONSOLE_CONSUMER,
            *("--bootstrap-server", server.bootstrap, "--topic", "__consumer_offsets", "--from-beginning"),
            *("--formatter", f"{FORMATTERS}.{formatter}", "--timeout-ms", "2000"),
        )
        transcripts.append(formatted(result))
    theirs, ours = transcripts
    assert len(theirs) >= 2, theirs
    assert ours == theirs
