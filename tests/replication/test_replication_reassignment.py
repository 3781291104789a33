"""kafka-reassign-partitions as a person uses it, on a cluster of processes: plans, moves, throttles, calling off.

That a throttle holds is proved by a bound that a slow machine cannot break: at any time no more than the rate allows
since the copy began has arrived, and one response. Each bound has a broker's quota for itself: one that was used before
may have room saved up.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from support.processes import wait_until
from support.quorum_cluster import QuorumCluster, separate
from support.tools import REASSIGN, StockTools
from support.wire import Wire

from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LEADER_REPLICAS, FOLLOWER_REPLICAS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
RESPONSE_BYTES = 65_536
RATE = 50_000
RECORDS, RECORD_BYTES = 480, 8_000
DATA_BYTES = RECORDS * RECORD_BYTES  # more than a minute at that rate
ENOUGH_BYTES = 3 * RESPONSE_BYTES
SETTINGS = {
    "replica.fetch.max.bytes": str(RESPONSE_BYTES),
    "replica.fetch.response.max.bytes": str(RESPONSE_BYTES),
    "replica.fetch.wait.max.ms": "200",
    "log.segment.delete.delay.ms": "0",
}


class Reassignment:
    """A cluster of four brokers, and the tool."""

    def __init__(self, cluster: QuorumCluster, tools: StockTools, directory: Path) -> None:
        self.cluster = cluster
        self.bootstrap = cluster.bootstrap
        self._tools = tools
        self._directory = directory

    # --- the tool

    def run(self, *arguments: str, code: int = 0) -> str:
        result = self._tools.run(REASSIGN, "--bootstrap-server", self.bootstrap, *arguments)
        assert result.code == code, result.out + result.err
        return result.out

    def plan(self, moves: Mapping[tuple[str, int], list[int]]) -> str:
        partitions = [{"topic": t, "partition": p, "replicas": replicas} for (t, p), replicas in moves.items()]
        return self.file("plan.json", json.dumps({"version": 1, "partitions": partitions}))

    def file(self, name: str, text: str) -> str:
        path = self._directory / name
        path.write_text(text)
        return str(path)

    def move(self, moves: Mapping[tuple[str, int], list[int]]) -> None:
        """Without a throttle, to its end."""
        plan = self.plan(moves)
        self.run("--reassignment-json-file", plan, "--execute")
        for (topic, partition), replicas in moves.items():
            self.await_replicas(topic, partition, replicas)
        verified = self.run("--reassignment-json-file", plan, "--verify")
        for topic, partition in moves:
            assert f"Reassignment of partition {topic}-{partition} is completed." in verified

    # --- what is there

    def create(self, name: str, assignment: dict[int, list[int]], records: int = RECORDS) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        admin.create_topics([NewTopic(name, replica_assignments=assignment)])
        admin.close()
        for partition, replicas in assignment.items():
            self.await_replicas(name, partition, replicas)
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, acks="all", linger_ms=5)
        value = b"x" * RECORD_BYTES
        sent = [producer.send(name, value, partition=p) for p in assignment for _ in range(records)]
        for one in sent:
            one.get(30)
        producer.close()

    def count(self, name: str, partitions: int = 1) -> int:
        """Records that a consumer gets."""
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap, group_id=None, auto_offset_reset="earliest")
        wanted = [TopicPartition(name, partition) for partition in range(partitions)]
        consumer.assign(wanted)
        total, found, deadline = sum(consumer.end_offsets(wanted).values()), 0, time.monotonic() + 20
        while found < total and time.monotonic() < deadline:
            found += sum(len(records) for records in consumer.poll(500).values())
        consumer.close()
        return found

    def partition(self, topic: str, index: int) -> tuple[list[int], list[int]]:
        """Replicas and ISR, as broker 1 tells them."""
        with Wire(self.cluster.nodes[1].port) as wire:
            answer = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)
        found = {p.partition_index: (list(p.replica_nodes), sorted(p.isr_nodes)) for p in answer.topics[0].partitions}
        return found.get(index, ([], []))

    def await_replicas(self, topic: str, index: int, replicas: list[int], timeout_s: float = 30) -> None:
        wait_until(
            lambda: self.partition(topic, index) == (replicas, sorted(replicas)),
            timeout_s,
            f"{topic}-{index} on {replicas}, all in sync",
        )

    def stored_bytes(self, node: int, topic: str, index: int = 0) -> int:
        return sum(path.stat().st_size for path in self.cluster.nodes[node].data_dir.glob(f"{topic}-{index}/*.log"))

    def await_gone(self, node: int, topic: str) -> None:
        directory = self.cluster.nodes[node].data_dir
        wait_until(lambda: not list(directory.glob(f"{topic}-*")), 20, f"no replica of {topic} on broker {node}")

    def await_bound(self, node: int, topic: str, rate: int, started: float) -> None:
        """Until enough has arrived; that took as long as the rate demands."""
        wait_until(lambda: self.stored_bytes(node, topic) >= ENOUGH_BYTES, 60, f"{ENOUGH_BYTES} bytes on broker {node}")
        copied, elapsed_s = self.stored_bytes(node, topic), time.monotonic() - started
        assert copied <= rate * max(elapsed_s, 1) + RESPONSE_BYTES, (copied, elapsed_s)

    def throttles(self) -> dict[str, str]:
        """Whatever is set of throttles, by broker and topic, as each broker tells it of itself."""
        topics = [(TOPIC, topic) for topic in ("copied", "leader", "follower", "called-off")]
        found = {}
        for node in (1, 2, 3, 4):
            resources = [
                DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
                for kind, name in [(BROKER, str(node)), (BROKER, ""), *topics]
            ]
            with Wire(self.cluster.nodes[node].port) as wire:
                results = wire.ask(DescribeConfigsRequest(resources=resources), 4).results
            for result in results:
                for config in result.configs:
                    if "replication.throttled" in config.name and config.value:
                        found[f"{result.resource_name} {config.name}"] = config.value
        return found

    def await_throttles(self, expected: dict[str, str]) -> None:
        """The controller has decided; a broker hears of it a moment later."""
        wait_until(lambda: self.throttles() == expected, 10, f"the throttles {expected}")

    def alter(self, *changes: tuple[int, str, str, str | None]) -> None:
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[AlterableConfig(name=key, config_operation=DELETE if value is None else SET, value=value)],
                )
                for kind, name, key, value in changes
            ]
        )
        with Wire(self.cluster.nodes[1].port) as wire:
            codes = [result.error_code for result in wire.ask(request).responses]
        assert codes == [0] * len(changes)


@pytest.fixture(scope="module")
def tool(stock_tools: StockTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reassignment]:
    directory = tmp_path_factory.mktemp("reassignment")
    cluster = QuorumCluster(directory, separate(controllers=1, brokers=4), extra=SETTINGS)
    try:
        cluster.start()
        yield Reassignment(cluster, stock_tools, directory)
    finally:
        cluster.close()


def test_a_throttled_move(tool: Reassignment) -> None:
    """From broker 1 to broker 2: as slow as it is told to be, then fast, and nothing of the throttle stays behind."""
    tool.create("copied", {0: [1]})
    plan = tool.plan({("copied", 0): [2]})
    started = time.monotonic()
    out = tool.run("--reassignment-json-file", plan, "--execute", "--throttle", str(RATE))
    assert f"The inter-broker throttle limit was set to {RATE} B/s" in out
    assert "Successfully started partition reassignment for copied-0" in out
    throttles = {
        **{f"{node} {name}": str(RATE) for node in (1, 2) for name in (LEADER_RATE, FOLLOWER_RATE)},
        f"copied {LEADER_REPLICAS}": "0:1",
        f"copied {FOLLOWER_REPLICAS}": "0:2",
    }
    tool.await_throttles(throttles)
    tool.await_bound(2, "copied", RATE, started)

    assert "copied-0: replicas: 2,1. adding: 2. removing: 1." in tool.run("--list")
    out = tool.run("--reassignment-json-file", plan, "--verify")
    assert "Reassignment of partition copied-0 is still in progress." in out
    assert tool.throttles() == throttles
    out = tool.run("--reassignment-json-file", plan, "--execute", code=1)
    assert "Cannot execute because there is an existing partition assignment" in out
    assert tool.partition("copied", 0)[1] == [1]

    # What is left would take longer than this test waits.
    out = tool.run("--reassignment-json-file", plan, "--execute", "--additional", "--throttle", "1000000000")
    assert "The inter-broker throttle limit was set to 1000000000 B/s" in out
    tool.await_replicas("copied", 0, [2])
    throttles |= {name: "1000000000" for name in throttles if name.endswith("rate")}
    tool.await_throttles(throttles)
    assert "No partition reassignments found." in tool.run("--list")
    out = tool.run("--reassignment-json-file", plan, "--verify", "--preserve-throttles")
    assert "Reassignment of partition copied-0 is completed." in out
    assert tool.throttles() == throttles
    out = tool.run("--reassignment-json-file", plan, "--verify")
    assert "Clearing broker-level throttles on brokers 1,2,3,4" in out
    assert "Clearing topic-level throttles on topic copied" in out
    tool.await_throttles({})
    tool.await_gone(1, "copied")
    assert tool.count("copied") == RECORDS


@pytest.mark.parametrize(
    ("topic", "leader", "follower", "rate", "replicas"),
    [("leader", 3, 2, LEADER_RATE, LEADER_REPLICAS), ("follower", 3, 4, FOLLOWER_RATE, FOLLOWER_REPLICAS)],
)
def test_each_side_holds_back_by_itself(
    tool: Reassignment, topic: str, leader: int, follower: int, rate: str, replicas: str
) -> None:
    """The rate is that of all brokers, the topic says "*". Producers do not wait, and removal counts at once."""
    tool.create(topic, {0: [leader]})
    tool.alter((BROKER, "", rate, str(RATE)), (TOPIC, topic, replicas, "*"))
    plan = tool.plan({(topic, 0): [leader, follower]})
    started = time.monotonic()
    tool.run("--reassignment-json-file", plan, "--execute")
    tool.await_bound(follower, topic, RATE, started)
    producer = KafkaProducer(bootstrap_servers=tool.bootstrap, acks="all")
    producer.send(topic, b"meanwhile", partition=0).get(10)
    producer.close()
    assert tool.partition(topic, 0)[1] == [leader]
    if topic == "leader":
        tool.alter((BROKER, "", rate, None))
    else:
        tool.alter((TOPIC, topic, replicas, None))
    tool.await_replicas(topic, 0, [leader, follower])
    tool.alter((BROKER, "", rate, None), (TOPIC, topic, replicas, None))
    tool.await_throttles({})
    assert tool.count(topic) == RECORDS + 1


def test_a_move_is_called_off(tool: Reassignment) -> None:
    """In the middle of a throttled copy: back to the replicas of before, and the copy is deleted."""
    tool.create("called-off", {0: [1, 2]})
    plan = tool.plan({("called-off", 0): [3, 4]})
    tool.run("--reassignment-json-file", plan, "--execute", "--throttle", str(RATE))
    for node in (3, 4):
        wait_until(lambda node=node: tool.stored_bytes(node, "called-off") > 0, 60, f"a part of the copy on {node}")
    assert tool.partition("called-off", 0)[1] == [1, 2]
    out = tool.run("--reassignment-json-file", plan, "--cancel", "--preserve-throttles")
    assert "Successfully cancelled partition reassignment for: called-off-0" in out
    assert tool.throttles() != {}
    tool.await_replicas("called-off", 0, [1, 2])
    for node in (3, 4):
        tool.await_gone(node, "called-off")
    assert "No partition reassignments found." in tool.run("--list")
    out = tool.run("--reassignment-json-file", plan, "--cancel")
    assert "None of the specified partition reassignments are active." in out
    tool.await_throttles({})
    assert tool.count("called-off") == RECORDS


def test_generated_plans_and_replication_factors(tool: Reassignment) -> None:
    """Raise the replication factor, lower it, and replace a broker with another, with several fetchers per leader."""
    tool.create("shaped", {0: [1], 1: [2], 2: [3]}, records=20)
    tool.alter((BROKER, "", "num.replica.fetchers", "2"))
    tool.move({("shaped", 0): [1, 2, 3], ("shaped", 1): [2, 3, 1], ("shaped", 2): [3, 1, 2]})
    tool.move({("shaped", 0): [2, 3], ("shaped", 1): [3, 1], ("shaped", 2): [1, 2]})
    tool.alter((BROKER, "", "num.replica.fetchers", "1"))

    topics = tool.file("topics.json", json.dumps({"version": 1, "topics": [{"topic": "shaped"}]}))
    out = tool.run("--topics-to-move-json-file", topics, "--broker-list", "2,3,4", "--generate")
    current, proposed = (json.loads(line) for line in out.splitlines() if line.startswith("{"))
    assert {p["partition"]: p["replicas"] for p in current["partitions"]} == {0: [2, 3], 1: [3, 1], 2: [1, 2]}
    moves = {("shaped", p["partition"]): p["replicas"] for p in proposed["partitions"]}
    assert all(len(replicas) == 2 and 1 not in replicas for replicas in moves.values())
    tool.move(moves)
    tool.await_gone(1, "shaped")
    assert tool.count("shaped", 3) == 60
