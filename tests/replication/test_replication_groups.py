"""Groups outlive their coordinator: another broker that has the log of their offsets takes over, members and all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from py4j.java_gateway import JavaGateway
from support.group_life import Feed, wait_for_records, wait_for_sharing
from support.java_clients import JavaConsumer
from support.processes import wait_until
from support.python_clients import Member, PythonConsumer
from support.quorum_cluster import QuorumCluster, combined
from support.wire import Wire

from protocol.errors import ErrorCode
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics

pytestmark = pytest.mark.slow

TOPIC, OFFSETS = "shared", "__consumer_offsets"
PARTITIONS = 4
CONSUMER_PROTOCOL = "java-consumer"
GROUPS = ("java-classic", CONSUMER_PROTOCOL, "kafka-python")
SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "2000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "auto.leader.rebalance.enable": "false",
}


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorumCluster]:
    made = QuorumCluster(tmp_path_factory.mktemp("groups"), combined(3), extra=SETTINGS)
    try:
        made.start()
        yield made
    finally:
        made.close()


def coordinator(cluster: QuorumCluster) -> int:
    """Of all groups: their topic has one partition here."""
    return cluster.partitions(OFFSETS)[0].leader


def member_ids(cluster: QuorumCluster, group: str) -> set[str]:
    with Wire(cluster.nodes[coordinator(cluster)].port) as wire:
        if group == CONSUMER_PROTOCOL:
            (found,) = wire.ask(ConsumerGroupDescribeRequest(group_ids=[group])).groups
        else:
            (found,) = wire.ask(DescribeGroupsRequest(groups=[group])).groups
        assert found.error_code == 0, found
        return {member.member_id for member in found.members}


def committed(cluster: QuorumCluster, group: str) -> list[int]:
    """Empty while the coordinator is another one, or still reads its log."""
    wanted = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(range(PARTITIONS)))
    with Wire(cluster.nodes[coordinator(cluster)].port) as wire:
        (found,) = wire.ask(
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[wanted])]), 9
        ).groups
    assert found.error_code in (0, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), found
    if found.error_code:
        return []
    return [part.committed_offset for part in sorted(found.topics[0].partitions, key=lambda part: part.partition_index)]


def test_groups_outlive_their_coordinator(cluster: QuorumCluster, jvm: JavaGateway) -> None:
    """kill -9 of whoever coordinates, twice. Each kind of client goes on in the group it was in: the same member ids,
    the same partitions, so no record is read twice and none is left out; and no commit is lost.
    """
    bootstrap = cluster.bootstrap
    feed = Feed(bootstrap, {TOPIC: PARTITIONS})
    cluster.await_isr(TOPIC, 1, 2, 3)
    members: dict[str, list[Member]] = {
        "java-classic": [JavaConsumer(jvm, bootstrap, "java-classic").subscribe(TOPIC) for _ in range(2)],
        CONSUMER_PROTOCOL: [
            JavaConsumer(jvm, bootstrap, CONSUMER_PROTOCOL, group_protocol="consumer").subscribe(TOPIC)
            for _ in range(2)
        ],
        "kafka-python": [PythonConsumer(bootstrap, "kafka-python", TOPIC) for _ in range(2)],
    }
    try:
        for own in members.values():
            wait_for_sharing(own, feed.partitions)
        feed.send()
        for own in members.values():
            wait_for_records(own, feed.sent)
        before = {group: member_ids(cluster, group) for group in GROUPS}
        owned = {group: [set(member.assigned) for member in members[group]] for group in GROUPS}
        assert all(len(ids) == 2 for ids in before.values()), before
        killed = []
        for _ in range(2):
            ends = [sum(part == index for _, part, _, _ in feed.sent) for index in range(PARTITIONS)]
            for group in GROUPS:
                wait_until(lambda g=group, e=ends: committed(cluster, g) == e, 20, "all is committed")  # type: ignore[misc]
            killed.append(coordinator(cluster))
            cluster.nodes[killed[-1]].kill()
            wait_until(lambda: coordinator(cluster) not in (-1, killed[-1]), 20, "another coordinator")
            for group in GROUPS:
                wait_until(lambda g=group: bool(committed(cluster, g)), 20, "the coordinator has read its log")  # type: ignore[misc]
                assert committed(cluster, group) == ends, group
            feed.send()
            for own in members.values():
                wait_for_records(own, feed.sent)
            cluster.start([killed[-1]])
            cluster.await_isr(OFFSETS, 1, 2, 3)
        assert len(set(killed)) == 2
        for group, own in members.items():
            wait_for_sharing(own, feed.partitions)
            assert member_ids(cluster, group) == before[group], group
            assert [set(member.assigned) for member in own] == owned[group], group
    finally:
        feed.close()
        for own in members.values():
            for member in own:
                member.close()
