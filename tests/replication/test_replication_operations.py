"""A cluster is changed while clients use it: brokers come, go, lose their disks; partitions and leaders move."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from support.processes import wait_until
from support.quorum_cluster import QuorumCluster, separate
from support.report import Report
from support.tools import CLUSTER, LEADER_ELECTION, REASSIGN, StockTools, ToolResult
from support.watched_topic import WatchedTopic, watched

pytestmark = [pytest.mark.stock, pytest.mark.slow]

TOPIC, ALONE, OFFSETS = "kept", "alone", "__consumer_offsets"
RACKS = {1: "a", 2: "b", 3: "c", 4: "a"}
SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "2000",
    "leader.imbalance.check.interval.seconds": "1",
}


def set_rack(cluster: QuorumCluster, node_id: int) -> None:
    with open(cluster.nodes[node_id].properties_path, "a") as properties:
        properties.write(f"broker.rack={RACKS[node_id]}\n")


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorumCluster]:
    made = QuorumCluster(tmp_path_factory.mktemp("operations"), separate(controllers=1, brokers=3), extra=SETTINGS)
    for node_id in (1, 2, 3):
        set_rack(made, node_id)
    try:
        made.start()
        yield made
    finally:
        made.close()


def create(cluster: QuorumCluster, *topics: NewTopic) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    admin.create_topics(list(topics))
    admin.close()


def ran(result: ToolResult) -> str:
    assert result.code == 0, result.out + result.err
    return result.out


def test_brokers_come_and_go(cluster: QuorumCluster, stock_tools: StockTools, tmp_path: Path, report: Report) -> None:
    """All of it on one cluster, because each step needs what the last one left. Clients write, read and commit from
    the first to the last; nothing they were told is lost, and in the end the replicas are the same to the byte.
    """
    create(cluster, NewTopic(TOPIC, 6, 3))
    cluster.await_isr(TOPIC, 1, 2, 3)
    with watched(cluster, TOPIC, tmp_path / "history.jsonl", (2, 3, 4), with_group=True) as load:
        a_broker_is_added(cluster, load)
        replicas_are_spread_over_racks(cluster)
        partitions_move_to_it(cluster, stock_tools, tmp_path)
        load.moves_on()
        a_broker_is_removed(cluster, stock_tools, load)
        a_broker_is_replaced(cluster, load)
        an_empty_disk_does_not_lead(cluster, stock_tools, load)
        report(load.finish())


def a_broker_is_added(cluster: QuorumCluster, load: WatchedTopic) -> None:
    added = cluster.add_broker(4)
    set_rack(cluster, 4)
    load.fault("a broker is added", 4, added.start)
    load.addresses[4] = (added.host, added.port)
    wait_until(lambda: cluster.brokers_known_to(1) == [1, 2, 3, 4], 20, "the fourth broker")


def replicas_are_spread_over_racks(cluster: QuorumCluster) -> None:
    """As Apache Kafka places them (tests/controller compares replica by replica): a rack is used twice only when
    there are fewer racks than replicas, and the brokers of a rack take turns. Which of them comes first is chance.
    """
    create(cluster, NewTopic("three", 12, 3), NewTopic("four", 4, 4))
    wait_until(lambda: len(cluster.partitions("four")) == 4, 10, "the topics")
    placed = [one.replicas for one in cluster.partitions("three").values()]
    assert len(placed) == 12
    assert all({RACKS[broker] for broker in replicas} == {"a", "b", "c"} for replicas in placed), placed
    assert {broker for replicas in placed for broker in replicas} == {1, 2, 3, 4}, placed
    assert all(sorted(one.replicas) == [1, 2, 3, 4] for one in cluster.partitions("four").values())
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    admin.delete_topics(["three", "four"])
    admin.close()


def partitions_move_to_it(cluster: QuorumCluster, tools: StockTools, directory: Path) -> None:
    """kafka-reassign-partitions plans, for both topics; the coordinator of the group moves along."""
    topics, plan = directory / "topics.json", directory / "plan.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": TOPIC}, {"topic": OFFSETS}]}))
    common = ("--bootstrap-server", cluster.bootstrap)
    wanted = ("--topics-to-move-json-file", str(topics), "--broker-list", "2,3,4")
    planned = ran(tools.run(REASSIGN, *common, *wanted, "--generate"))
    plan.write_text(planned.rpartition("Proposed partition reassignment configuration\n")[2])
    common += ("--reassignment-json-file", str(plan))
    ran(tools.run(REASSIGN, *common, "--execute"))
    for topic in (TOPIC, OFFSETS):
        cluster.await_isr(topic, 2, 3, 4)
    verified = ran(tools.run(REASSIGN, *common, "--verify"))
    assert verified.count("is completed") == 7, verified
    for topic in (TOPIC, OFFSETS):
        assert all(sorted(one.replicas) == [2, 3, 4] for one in cluster.partitions(topic).values())
        # Nobody asks for it: auto.leader.rebalance.enable is Kafka's default.
        wait_until(lambda t=topic: leaders_are_preferred(cluster, t), 20, "the first replicas lead")  # type: ignore[misc]
    gone = cluster.nodes[1].data_dir
    wait_until(lambda: not list(gone.glob(f"{TOPIC}-?")), 10, "the moved replicas are gone from broker 1")


def leaders_are_preferred(cluster: QuorumCluster, topic: str) -> bool:
    return all(one.leader == one.replicas[0] for one in cluster.partitions(topic).values())


def a_broker_is_removed(cluster: QuorumCluster, tools: StockTools, load: WatchedTopic) -> None:
    load.fault("a broker is removed", 1, cluster.nodes[1].terminate)
    common = ("--bootstrap-server", cluster.bootstrap)
    everyone = ("list-endpoints", *common, "--include-fenced-brokers")
    assert "fenced" in [line.split()[4] for line in ran(tools.run(CLUSTER, *everyone)).splitlines()[1:]]
    assert "Broker 1 is no longer registered." in ran(tools.run(CLUSTER, "unregister", *common, "--id", "1"))
    left = [line.split()[0] for line in ran(tools.run(CLUSTER, *everyone)).splitlines()[1:]]
    assert left == ["2", "3", "4"]
    load.moves_on()


def a_broker_is_replaced(cluster: QuorumCluster, load: WatchedTopic) -> None:
    """The same id on an empty disk: it fetches everything, joins the in-sync sets, and leads only then."""
    load.fault("a broker loses its disk", 3, cluster.nodes[3].kill)
    cluster.await_isr(TOPIC, 2, 4)
    load.moves_on()
    cluster.replace_disk(3)
    cluster.nodes[3].start()

    def in_sync() -> bool:
        found = cluster.partitions(TOPIC).values()
        assert all(one.leader in one.isr for one in found), found
        return bool(found) and all(one.isr == [2, 3, 4] for one in found)

    wait_until(in_sync, 30, "the new disk has everything")
    cluster.await_isr(OFFSETS, 2, 3, 4)
    wait_until(lambda: leaders_are_preferred(cluster, TOPIC), 20, "it leads again what it is the first replica of")
    load.moves_on()


def an_empty_disk_does_not_lead(cluster: QuorumCluster, tools: StockTools, load: WatchedTopic) -> None:
    """Broker 4 alone has the last record of a topic, and loses its disk. Nobody leads then, not even broker 4, the
    last known leader: broker 2, which has the record before, would truncate to nothing. A person decides.
    """
    create(cluster, NewTopic(ALONE, replica_assignments={0: [2, 4]}, topic_configs={"min.insync.replicas": "1"}))
    cluster.await_isr(ALONE, 2, 4)
    send(cluster, ALONE, b"on both")
    load.fault("kill -9", 2, cluster.nodes[2].kill)
    cluster.await_isr(ALONE, 4)
    send(cluster, ALONE, b"on one")
    load.fault("a broker loses its disk", 4, cluster.nodes[4].kill, besides=[2])
    cluster.replace_disk(4)
    cluster.start([2, 4])
    cluster.await_isr(TOPIC, 2, 3, 4)  # what broker 3 had all the time is complete again, and everyone is unfenced
    load.fault("restart", 2, cluster.nodes[2].terminate)
    cluster.start([2])  # a broker that comes is a reason to look for leaders once more
    cluster.await_isr(TOPIC, 2, 3, 4)
    alone = cluster.partitions(ALONE)[0]
    assert (alone.leader, alone.isr) == (-1, [])
    common = ("--bootstrap-server", cluster.bootstrap, "--topic", ALONE, "--partition", "0")
    assert "Successfully completed" in ran(tools.run(LEADER_ELECTION, *common, "--election-type", "unclean"))
    cluster.await_isr(ALONE, 2, 4)
    send(cluster, ALONE, b"after it")
    for broker in (2, 4):
        log = (cluster.nodes[broker].data_dir / f"{ALONE}-0" / f"{0:020}.log").read_bytes()
        assert b"on both" in log and b"on one" not in log


def send(cluster: QuorumCluster, topic: str, value: bytes) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all")
    producer.send(topic, value, partition=0).get(20)
    producer.close()
