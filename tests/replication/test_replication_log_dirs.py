"""Three brokers with two log directories each: replicas move between them with the stock tools, and one dies."""

from __future__ import annotations

import json
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from support.processes import wait_until
from support.quorum_cluster import NodeProcess, QuorumCluster, separate
from support.tools import LOG_DIRS, REASSIGN, TOPICS, StockTools, write_temporary
from support.wire import Wire

from protocol.errors import ErrorCode
from protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

TOPIC, FRESH = "kept", "fresh"
PARTITIONS = 4
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
BROKER, SET = 4, 0
SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    # How soon a disk whose syncs fail is noticed without a producer that waits for one.
    "log.flush.offset.checkpoint.interval.ms": "500",
}
DYING = 1


class Feed:
    """Writes to all partitions with acks=all until it is stopped, and remembers what was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acked: dict[int, set[bytes]] = {partition: set() for partition in range(PARTITIONS)}
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", retries=100, retry_backoff_ms=100)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopped.wait(0.01):
            values = [b"%d-%d" % (partition, number) for partition in range(PARTITIONS)]
            sent = [self._producer.send(TOPIC, value, partition=at) for at, value in enumerate(values)]
            for partition, (value, one) in enumerate(zip(values, sent, strict=True)):
                one.get(60)
                self.acked[partition].add(value)
            number += 1

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(90)
        assert not self._thread.is_alive()
        self._producer.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[QuorumCluster]:
    made = QuorumCluster(tmp_path, separate(controllers=1, brokers=3), extra=SETTINGS, log_directories=2)
    dying = made.nodes[DYING]
    dying.command = [
        *(sys.executable, "-m", "support.failing_disk", str(tmp_path / "mark")),
        *("server-start", str(dying.properties_path)),
    ]
    try:
        made.start()
        yield made
    finally:
        made.close()


def metadata(cluster: QuorumCluster, topic: str = TOPIC) -> dict[int, Any]:
    node = next(n for n in cluster.running() if n.is_broker and n.node_id != DYING)
    with Wire(node.port) as wire:
        answer = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)
    return {partition.partition_index: partition for partition in answer.topics[0].partitions}


def placed(node: NodeProcess, topic: str = TOPIC) -> dict[int, Path]:
    """Where a broker keeps its replicas, by its files."""
    found: dict[int, Path] = {}
    for directory in node.data_dirs:
        for path in directory.glob(f"{topic}-*"):
            if path.name.count(".") == 0:
                found[int(path.name.rpartition("-")[2])] = directory
    return found


def stored(node: NodeProcess, partition: int) -> bytes:
    """The bytes of all segments of a replica."""
    segments = sorted((placed(node)[partition] / f"{TOPIC}-{partition}").glob("*.log"))
    return b"".join(segment.read_bytes() for segment in segments)


def futures(node: NodeProcess) -> dict[tuple[str, int], int]:
    """Copies on their way, with their lag."""
    with Wire(node.port) as wire:
        answer = wire.ask(DescribeLogDirsRequest(topics=None))
    return {
        (topic.name, partition.partition_index): partition.offset_lag
        for result in answer.results
        for topic in result.topics
        for partition in topic.partitions
        if partition.is_future_key
    }


def set_rate(cluster: QuorumCluster, rate: int) -> None:
    change = AlterableConfig(name=RATE, config_operation=SET, value=str(rate))
    for node in cluster.running():
        if node.is_broker:  # each takes its own
            resource = AlterConfigsResource(resource_type=BROKER, resource_name=str(node.node_id), configs=[change])
            with Wire(node.port) as wire:
                answer = wire.ask(IncrementalAlterConfigsRequest(resources=[resource]))
            assert answer.responses[0].error_code == ErrorCode.NONE


def other(node: NodeProcess, directory: Path) -> Path:
    return next(one for one in node.data_dirs if one != directory)


def described(tools: StockTools, cluster: QuorumCluster, broker: int) -> dict[str, Any]:
    """`kafka-log-dirs --describe` of one broker: its directories by path."""
    arguments = ("--describe", "--broker-list", str(broker), "--topic-list", f"{TOPIC},{FRESH}")
    result = tools.run(LOG_DIRS, "--bootstrap-server", cluster.nodes[2].bootstrap, *arguments)
    (told,) = json.loads(result.lines[-1])["brokers"]
    return {one["logDir"]: one for one in told["logDirs"]}


def holds(tools: StockTools, cluster: QuorumCluster, *words: str) -> bool:
    """Whether `kafka-reassign-partitions --verify` says all of that."""
    result = tools.run(REASSIGN, "--bootstrap-server", cluster.nodes[2].bootstrap, *words)
    return result.code == 0 and "failed" not in result.out and "still in progress" not in result.out


def test_replicas_move_and_a_directory_dies(cluster: QuorumCluster, stock_tools: StockTools, tmp_path: Path) -> None:
    one, two, three = (cluster.nodes[node_id] for node_id in (1, 2, 3))
    admin = KafkaAdminClient(bootstrap_servers=two.bootstrap)
    spread = {partition: [1 + (partition + at) % 3 for at in range(3)] for partition in range(PARTITIONS)}
    admin.create_topics([NewTopic(TOPIC, replica_assignments=spread, topic_configs={"min.insync.replicas": "2"})])
    admin.create_topics([NewTopic(FRESH, replica_assignments={0: [3]})])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=two.bootstrap, acks="all", max_request_size=2_000_000)
    for at in range(24):
        producer.send(TOPIC, bytes([at]) * 100_000, partition=0).get(30)
    producer.send(FRESH, b"first", partition=0).get(30)
    producer.close()
    feed = Feed(two.bootstrap)

    # kafka-reassign-partitions moves partition 0 on every broker, and another topic into a directory elsewhere.
    before = {node: placed(node)[0] for node in (one, two, three)}
    wanted = {
        "version": 1,
        "partitions": [
            {
                "topic": TOPIC,
                "partition": 0,
                "replicas": [1, 2, 3],
                "log_dirs": [str(other(node, directory)) for node, directory in before.items()],
            },
            {"topic": FRESH, "partition": 0, "replicas": [2], "log_dirs": [str(two.data_dirs[1])]},
        ],
    }
    plan = write_temporary(json.dumps(wanted), ".json")
    bootstrap = ("--bootstrap-server", two.bootstrap)
    arguments = ("--reassignment-json-file", plan, "--execute", "--replica-alter-log-dirs-throttle", "100000")
    executed = stock_tools.run(REASSIGN, *bootstrap, *arguments)
    assert executed.code == 0 and executed.out.count("Successfully started moving log directory") == 4, executed
    assert "The replica-alter-dir throttle limit was set to 100000 B/s" in executed.out
    wait_until(lambda: all((TOPIC, 0) in futures(node) for node in (one, two, three)), 20, "copies on all brokers")
    assert all(futures(node)[TOPIC, 0] > 0 for node in (one, two, three))
    shown = [
        replica
        for directory in described(stock_tools, cluster, 2).values()
        for replica in directory["partitions"]
        if replica["partition"] == f"{TOPIC}-0"
    ]
    assert sorted(replica["isFuture"] for replica in shown) == [False, True]
    verified = stock_tools.run(REASSIGN, *bootstrap, "--reassignment-json-file", plan, "--verify")
    assert "is still in progress" in verified.out, verified
    # One of the brokers is killed on the way, and goes on.
    three.kill()
    cluster.start([3])
    assert (TOPIC, 0) in futures(three) or placed(three)[0] != before[three]
    set_rate(cluster, 1 << 30)
    verify = ("--reassignment-json-file", plan, "--verify")
    wait_until(lambda: holds(stock_tools, cluster, *verify), 40, "the moves to be complete")
    assert {node: placed(node)[0] for node in (one, two, three)} == {
        node: other(node, directory) for node, directory in before.items()
    }
    assert placed(two, FRESH) == {0: two.data_dirs[1]}
    assert not any(futures(node) for node in (one, two, three))

    # A directory of a broker dies: what it led is led by others, what is in the other directory goes on.
    wait_until(lambda: all(len(p.isr_nodes) == 3 for p in metadata(cluster).values()), 30, "all replicas in sync")
    for partition, place in placed(one).items():
        if partition in (1, 2) and (place == one.data_dirs[1]) != (partition == 1):
            move(one, partition, other(one, place))
    lost = {partition for partition, place in placed(one).items() if place == one.data_dirs[1]}
    assert lost and lost != set(range(PARTITIONS))
    (tmp_path / "mark").write_text(f"sync {one.data_dirs[1]}")

    def has_left() -> bool:
        found = metadata(cluster)
        return all((1 not in found[partition].isr_nodes) == (partition in lost) for partition in found)

    wait_until(has_left, 30, "broker 1 to leave the ISR of what it has lost, and nothing else")
    found = metadata(cluster)
    assert all(found[partition].leader_id in (2, 3) for partition in lost)
    assert all(1 in found[partition].offline_replicas for partition in lost)
    topics = stock_tools.run(TOPICS, *bootstrap, "--describe", "--under-replicated-partitions").out
    named = {int(line.split("Partition:")[1].split()[0]) for line in topics.splitlines() if f"Topic: {TOPIC}" in line}
    assert named == lost, topics
    directories = described(stock_tools, cluster, 1)
    assert directories[str(one.data_dirs[1])]["error"] == "org.apache.kafka.common.errors.KafkaStorageException"
    kept = {replica["partition"] for replica in directories[str(one.data_dirs[0])]["partitions"]}
    assert kept == {f"{TOPIC}-{partition}" for partition in set(range(PARTITIONS)) - lost}

    # The disk is replaced by an empty one.
    one.terminate()
    shutil.rmtree(one.data_dirs[1])
    (tmp_path / "mark").unlink()
    cluster.start([1])
    wait_until(lambda: all(len(p.isr_nodes) == 3 for p in metadata(cluster).values()), 40, "all replicas in sync again")
    assert set(placed(one)) == set(range(PARTITIONS))
    feed.stop()
    check_records(two.bootstrap, feed)
    for partition in range(PARTITIONS):
        wait_until(
            lambda at=partition: len({stored(node, at) for node in (one, two, three)}) == 1, 20, "equal replicas"
        )
    for node in cluster.nodes.values():
        assert "Traceback" not in node.log_text, node.log_text[-4000:]


def move(node: NodeProcess, partition: int, to: Path) -> None:
    topics = [AlterReplicaLogDirTopic(name=TOPIC, partitions=[partition])]
    with Wire(node.port) as wire:
        answer = wire.ask(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(to), topics=topics)]))
    assert answer.results[0].partitions[0].error_code == ErrorCode.NONE
    wait_until(lambda: placed(node).get(partition) == to, 20, f"{partition} in {to}")


def check_records(bootstrap: str, feed: Feed) -> None:
    """All that was acknowledged is there."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=20_000)
    for partition, acked in feed.acked.items():
        at = TopicPartition(TOPIC, partition)
        consumer.assign([at])
        consumer.seek_to_beginning(at)
        end = consumer.end_offsets([at])[at]
        values: set[bytes] = set()
        while consumer.position(at) < end:
            values.update(record.value for records in consumer.poll(1000).values() for record in records)
        assert acked and acked <= values, f"partition {partition} lost {len(acked - values)} records"
    consumer.close()
