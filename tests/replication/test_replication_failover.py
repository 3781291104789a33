"""A broker's process dies: nobody waits for its session to end, neither its partitions nor its next start.

The session lasts ten minutes here, so whatever happens within the limits of these tests does not come from its end.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes import free_ports, wait_until
from support.quorum_cluster import NodeProcess, QuorumCluster, combined
from support.wire import OneRecord, ask

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import build_batch

TOPIC = "survivors"
LIMIT_S = 30
REFUSED = "another broker with this node.id is alive"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorumCluster]:
    settings = {
        "broker.session.timeout.ms": "600000",
        "broker.heartbeat.interval.ms": "300",
        "min.insync.replicas": "2",
        "auto.leader.rebalance.enable": "false",
    }
    made = QuorumCluster(tmp_path_factory.mktemp("failover"), combined(3), extra=settings)
    try:
        made.start()
        yield made
    finally:
        made.close()


def create(cluster: QuorumCluster, name: str, first: int) -> None:
    """One partition on all nodes, led by `first`."""
    order = [first, *(node for node in cluster.nodes if node != first)]
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=order)],
    )
    answer = ask(cluster.running()[0].port, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
    assert answer.topics[0].error_code == 0, answer.topics[0].error_message
    wait_until(lambda: state(cluster, name) == (first, 3), LIMIT_S, "led as wished, and all in sync")


def state(cluster: QuorumCluster, name: str, without: int = -1) -> tuple[int, int]:
    """Leader and size of the ISR, as a running node has it."""
    node = next(node for node in cluster.running() if node.node_id != without)
    answer = ask(node.port, MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12)
    (partition,) = answer.topics[0].partitions or [None]
    return (-1, 0) if partition is None else (partition.leader_id, len(partition.isr_nodes))


def is_acknowledged(cluster: QuorumCluster, name: str, without: int) -> bool:
    leader, _ = state(cluster, name, without)
    if leader in (-1, without):
        return False
    data = PartitionProduceData(index=0, records=bytes(build_batch([OneRecord(b"v")])))
    request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=name, partition_data=[data])])
    answer = ask(cluster.nodes[leader].port, request, 9)
    return bool(answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE)


@pytest.mark.parametrize("is_controller", [False, True])
def test_others_lead_and_it_comes_back(cluster: QuorumCluster, is_controller: bool) -> None:
    controller = cluster.await_leader()
    victim = next(node_id for node_id in cluster.nodes if (node_id == controller) == is_controller)
    topic = f"{TOPIC}-{is_controller}"
    create(cluster, topic, victim)
    cluster.nodes[victim].kill()
    wait_until(lambda: is_acknowledged(cluster, topic, victim), LIMIT_S, "another leader acknowledges")
    cluster.start([victim])
    wait_until(lambda: state(cluster, topic)[1] == 3, LIMIT_S, "the broker is in sync again")


def test_one_that_is_started_again_at_once_takes_its_place(cluster: QuorumCluster) -> None:
    """Faster than anyone has noticed that it died: its old session does not keep it out."""
    controller = cluster.await_leader()
    victim = next(node_id for node_id in cluster.nodes if node_id != controller)
    for stop in (cluster.nodes[victim].kill, cluster.nodes[victim].terminate):
        stop()
        cluster.start([victim])
        wait_until(lambda: cluster.brokers_known_to(victim) == [1, 2, 3], LIMIT_S, "it is a broker again")


def test_one_that_hangs_is_left_to_its_session(cluster: QuorumCluster) -> None:
    """Its kernel still takes connections: whether it is dead or slow, nobody can tell. It leads on when it wakes up."""
    controller = cluster.await_leader()
    victim = next(node_id for node_id in cluster.nodes if node_id != controller)
    topic = f"{TOPIC}-hangs"
    create(cluster, topic, victim)
    node = cluster.nodes[victim]
    os.kill(node.pid, signal.SIGSTOP)
    try:
        with pytest.raises(TimeoutError):  # several heartbeats are missing by then, and it was looked for
            wait_until(lambda: state(cluster, topic, victim)[0] != victim, 2, "another leader")
    finally:
        os.kill(node.pid, signal.SIGCONT)
    wait_until(lambda: is_acknowledged(cluster, topic, -1), LIMIT_S, "the leader goes on")


def test_a_copy_of_a_live_broker_is_refused_until_that_one_dies(cluster: QuorumCluster, tmp_path: Path) -> None:
    """With its log directories and its advertised addresses, as a cloned machine has them: it is not the same broker,
    started again."""
    node = cluster.add_broker(4)
    cluster.start([4])
    wait_until(lambda: cluster.brokers_known_to(4) == [1, 2, 3, 4], LIMIT_S, "it is a broker")
    (port,) = free_ports(1)
    home = tmp_path / "copy"
    shutil.copytree(node.data_dir, home / "data")
    settings = node.settings | {"log.dirs": str(home / "data"), "listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    copy = NodeProcess(4, node.spec, home, settings, (port,))
    try:
        copy.launch()
        wait_until(lambda: REFUSED in copy.log_text, LIMIT_S, "the copy is refused")
        with pytest.raises(TimeoutError):  # it asks five times a second
            wait_until(lambda: "Registered" in copy.log_text, 2, "the copy is registered")
        assert "STALE_BROKER_EPOCH" not in node.log_text and cluster.brokers_known_to(4) == [1, 2, 3, 4]
        node.kill()
        copy.await_ready()
    finally:
        copy.close()
        node.close()
        del cluster.nodes[4]
