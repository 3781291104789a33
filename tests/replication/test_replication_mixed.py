"""A topic with replicas on two brokers of ours and one of Apache Kafka: one cluster, whoever leads.

So a cluster can be moved broker by broker, in either direction.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fault_clients import Client, Producer, Reader
from support.fault_run import add_replica
from support.history import History
from support.history_check import check
from support.processes import wait_until
from support.quorum_cluster import KAFKA, OURS, NodeSpec, QuorumCluster
from support.tools import StockTools
from support.wire import ask

from protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

pytestmark = [pytest.mark.stock, pytest.mark.slow]

TOPIC = "mixed"
BROKERS = (1, 2, 3)
FROM_KAFKA = 3


@pytest.fixture
def cluster(stock_tools: StockTools, tmp_path: Path) -> Iterator[QuorumCluster]:
    nodes = {
        101: NodeSpec("controller", OURS),
        1: NodeSpec("broker", OURS),
        2: NodeSpec("broker", OURS),
        FROM_KAFKA: NodeSpec("broker", KAFKA),
    }
    settings = {
        "min.insync.replicas": "2",
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "300",
        "replica.lag.time.max.ms": "3000",
    }
    made = QuorumCluster(tmp_path, nodes, tools=stock_tools, extra=settings)
    try:
        made.start()
        yield made
    finally:
        made.close()


def partitions(cluster: QuorumCluster) -> list[tuple[int, list[int]]]:
    for node in cluster.running():
        if node.is_broker:
            try:
                answer = ask(node.port, MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12, timeout_s=3)
            except OSError:
                continue
            return [(p.leader_id, sorted(p.isr_nodes)) for p in answer.topics[0].partitions]
    return []


def test_all_in_sync_whoever_leads(cluster: QuorumCluster, tmp_path: Path) -> None:
    """Each broker is killed in turn while it leads; nothing is lost, and the replicas are the same to the byte."""
    wait_until(lambda: cluster.brokers_known_to(1) == [1, 2, 3], 60, "all brokers")
    rotated = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
    topic = CreatableTopic(
        name=TOPIC,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
            for index, replicas in enumerate(rotated)
        ],
    )
    answer = ask(cluster.nodes[1].port, CreateTopicsRequest(topics=[topic], timeout_ms=20_000), 7, timeout_s=30)
    assert answer.topics[0].error_code == 0, answer.topics[0].error_message

    def in_sync() -> bool:
        found = partitions(cluster)
        return len(found) == 3 and all(leader > 0 and isr == [1, 2, 3] for leader, isr in found)

    wait_until(in_sync, 30, "all replicas in sync")
    assert [leader for leader, _ in partitions(cluster)] == [1, 2, 3]
    history = History(tmp_path / "history.jsonl")
    rest = ({node: ("127.0.0.1", cluster.nodes[node].port) for node in BROKERS}, TOPIC, history)
    producers = [Producer("a", (0, 1, 2), *rest), Producer("b", (2, 1, 0), *rest)]
    clients: list[Client] = [*producers, Reader("r", (0, 1, 2), *rest)]
    for client in clients:
        client.start()
    led: set[int] = set()
    for victim in (FROM_KAFKA, 1, 2):
        before = [producer.acknowledged for producer in producers]
        wait_until(
            lambda b=before: all(p.acknowledged > at + 50 for p, at in zip(producers, b, strict=True)),  # type: ignore[misc]
            60,
            "records between two faults",
        )
        led |= {leader for leader, _ in partitions(cluster)}
        history.add("fault", kind=f"kill -9 of a broker of {cluster.nodes[victim].spec.software}", nodes=[victim])
        cluster.nodes[victim].kill()
        before = [producer.acknowledged for producer in producers]
        wait_until(
            lambda b=before: all(p.acknowledged > at + 50 for p, at in zip(producers, b, strict=True)),  # type: ignore[misc]
            60,
            "records after a fault",
        )
        led |= {leader for leader, _ in partitions(cluster)}
        cluster.start([victim])
        wait_until(in_sync, 90, f"broker {victim} is in sync again")
    assert led == {1, 2, 3}
    for client in producers:
        client.stop()
    reader = clients[-1]
    assert isinstance(reader, Reader)
    total = sum(producer.acknowledged for producer in producers)
    wait_until(lambda: sum(reader.positions.values()) >= total, 30, "everything is read")
    wait_until(lambda: _high_watermarks_are_equal(cluster, total), 30, "the last high watermark is on disk everywhere")
    reader.stop()
    for node in BROKERS:
        cluster.nodes[node].terminate(60)
        for partition in range(3):
            add_replica(history, cluster.nodes[node], TOPIC, partition, with_values=True)
    history.close()
    verdict = check(history.path)
    print(f"\n{verdict.report()}")
    assert verdict.is_good, verdict.report()


def _high_watermarks_are_equal(cluster: QuorumCluster, total: int) -> bool:
    """Written every five seconds by both."""
    sums = []
    for node in BROKERS:
        text = (cluster.nodes[node].data_dir / "replication-offset-checkpoint").read_text()
        sums.append(sum(int(line.split()[2]) for line in text.splitlines() if line.startswith(f"{TOPIC} ")))
    return all(one >= total for one in sums)
