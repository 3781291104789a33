"""A topic with replicas on two brokers of ours and one of Apache Kafka: one cluster, whoever leads.

So a cluster can be moved broker by broker, in either direction.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes import wait_until
from support.quorum_cluster import KAFKA, OURS, NodeSpec, QuorumCluster
from support.report import Report
from support.tools import StockTools
from support.watched_topic import WatchedTopic, watched
from support.wire import ask, batch

from protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

pytestmark = [pytest.mark.stock, pytest.mark.slow]

TOPIC, PARTING = "mixed", "parting"
BROKERS = (1, 2, 3)
FROM_KAFKA = 3
PARTED = {FROM_KAFKA: [3, 1, 2], 1: [1, 3, 2]}
"""By the broker that is killed while it leads: the replicas of its partition. The second one takes over."""


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


def create(cluster: QuorumCluster, name: str, placed: list[list[int]]) -> None:
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
            for index, replicas in enumerate(placed)
        ],
    )
    answer = ask(cluster.nodes[1].port, CreateTopicsRequest(topics=[topic], timeout_ms=20_000), 7, timeout_s=30)
    assert answer.topics[0].error_code == 0, answer.topics[0].error_message
    cluster.await_isr(name, *BROKERS)


def leaders(cluster: QuorumCluster) -> list[int]:
    return [one.leader for one in cluster.partitions(TOPIC).values()]


def test_all_in_sync_whoever_leads(cluster: QuorumCluster, tmp_path: Path, report: Report) -> None:
    """Each broker is killed in turn while it leads; nothing is lost, and the replicas are the same to the byte. Then
    one of each software goes on as the other, with the directory it has.
    """
    wait_until(lambda: cluster.brokers_known_to(1) == [1, 2, 3], 60, "all brokers")
    create(cluster, TOPIC, [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    create(cluster, PARTING, list(PARTED.values()))
    assert leaders(cluster) == [1, 2, 3]
    with watched(cluster, TOPIC, tmp_path / "history.jsonl", BROKERS) as load:
        led = set(leaders(cluster))
        for victim in (FROM_KAFKA, 1, 2):
            kind = f"kill -9 of a broker of {cluster.nodes[victim].spec.software}"
            if victim in PARTED:
                load.fault(kind, victim, lambda v=victim: kill_with_a_tail(cluster, v))  # type: ignore[misc]
            else:
                load.fault(kind, victim, cluster.nodes[victim].kill)
            load.moves_on()
            led |= set(leaders(cluster))
            if victim in PARTED:
                check_parted(cluster, victim)
            cluster.start([victim])
            for topic in (TOPIC, PARTING):
                cluster.await_isr(topic, *BROKERS, timeout_s=90)
            load.moves_on()
        assert led == {1, 2, 3}
        for node, software in ((FROM_KAFKA, OURS), (1, KAFKA)):
            moves_to(cluster, node, software, load)
        report(load.finish())
    for partition in range(len(PARTED)):
        path = Path(f"{PARTING}-{partition}") / f"{0:020}.log"
        logs = {(cluster.nodes[broker].data_dir / path).read_bytes() for broker in BROKERS}
        assert len(logs) == 1, f"partition {partition} of {PARTING} differs"
        assert b"of the next leader" in (log := logs.pop()) and b"nobody else has" not in log


def moves_to(cluster: QuorumCluster, node_id: int, software: str, load: WatchedTopic) -> None:
    """A broker of the other software takes its place: the same properties, the same data."""
    node = cluster.nodes[node_id]
    load.fault(f"a broker becomes one of {software}", node_id, lambda: node.terminate(60))
    load.moves_on()
    node.run_as(software)
    node.start()
    for topic in (TOPIC, PARTING):
        cluster.await_isr(topic, *BROKERS, timeout_s=90)
    assert node.data_dir.joinpath(f"{TOPIC}-0").is_dir()
    load.moves_on()


# Logs that part: the dead leader has a record that nobody else has, and must give it up when it returns.


def kill_with_a_tail(cluster: QuorumCluster, victim: int) -> None:
    """The others hang while the leader takes two records with acks=1. Fetches that were waiting may still bring them
    the first one.
    """
    partition = list(PARTED).index(victim)
    assert cluster.partitions(PARTING)[partition].leader == victim
    others = [cluster.nodes[broker].pid for broker in BROKERS if broker != victim]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    try:
        produce(cluster, victim, partition, b"perhaps fetched")
        produce(cluster, victim, partition, b"nobody else has this")
        cluster.nodes[victim].kill()
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)


def check_parted(cluster: QuorumCluster, victim: int) -> None:
    """The next leader is of the other software, and goes on at the offset of the record that it does not have."""
    partition, successor = list(PARTED).index(victim), PARTED[victim][1]
    wait_until(lambda: cluster.partitions(PARTING)[partition].leader == successor, 30, "the second replica leads")
    assert cluster.nodes[victim].spec.software != cluster.nodes[successor].spec.software
    for _ in range(2):
        produce(cluster, successor, partition, b"of the next leader")


def produce(cluster: QuorumCluster, broker: int, partition: int, value: bytes) -> None:
    data = PartitionProduceData(index=partition, records=bytes(batch(value)))
    request = ProduceRequest(
        acks=1, timeout_ms=5_000, topic_data=[TopicProduceData(name=PARTING, partition_data=[data])]
    )
    answer = ask(cluster.nodes[broker].port, request, 9)
    assert answer.responses[0].partition_responses[0].error_code == 0, answer
