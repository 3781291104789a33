"""Groups outlive their coordinator: another broker that has the log of their offsets takes over, members and all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from py4j.java_gateway import JavaGateway
from support.group_life import Feed, wait_for_records, wait_for_sharing
from support.group_requests import beat, commit, fetch, join, sync
from support.java_clients import JavaConsumer
from support.processes import wait_until
from support.python_clients import Member, PythonConsumer
from support.quorum_cluster import QuorumCluster, combined, separate
from support.wire import Wire, ask

from broker.coordinator.partitioning import partition_for
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
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


# Below min.insync.replicas

CALM, BUSY = "calm", "busy"
"""Groups in different partitions: nobody commits in the first one while brokers are killed."""
KINDS = ("classic", "consumer", "python")


@pytest.fixture
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorumCluster]:
    """Three of them, with a controller that stays. Records need one replica, commits two; broker 1 coordinates."""
    settings = SETTINGS | {"min.insync.replicas": "1"}
    made = QuorumCluster(tmp_path_factory.mktemp("groups"), separate(1, 3), extra=settings)
    try:
        made.start()
        configs = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
        topic = CreatableTopic(
            name=OFFSETS,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=i, broker_ids=[1, 2, 3]) for i in range(2)],
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
        )
        created = ask(made.nodes[1].port, CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert created.topics[0].error_code == 0, created
        made.await_isr(OFFSETS, 1, 2, 3)
        yield made
    finally:
        made.close()


def test_groups_go_on_without_enough_replicas(brokers: QuorumCluster, jvm: JavaGateway) -> None:
    """Two of three brokers are killed. Who reads goes on reading, and stays in the group without a rebalance; offsets
    are told as they were committed last; commits are refused until a broker is back, and then succeed by themselves.
    """
    assert {partition_for(CALM, 2), *(partition_for(f"{BUSY}-{kind}", 2) for kind in KINDS)} == {0, 1}
    assert len({partition_for(f"{BUSY}-{kind}", 2) for kind in KINDS}) == 1
    bootstrap, wire = brokers.bootstrap, Wire(brokers.nodes[1].port)
    feed = Feed(bootstrap, {TOPIC: PARTITIONS})
    brokers.await_isr(TOPIC, 1, 2, 3)
    members: dict[str, Member] = {
        "classic": JavaConsumer(jvm, bootstrap, f"{BUSY}-classic").subscribe(TOPIC),
        "consumer": JavaConsumer(jvm, bootstrap, f"{BUSY}-consumer", group_protocol="consumer").subscribe(TOPIC),
        "python": PythonConsumer(bootstrap, f"{BUSY}-python", TOPIC),
    }
    calm = wire.ask(join(CALM), 3)
    assert wire.ask(sync(CALM, calm.member_id, calm.generation_id, assigned=(calm.member_id,)), 3).error_code == 0
    try:
        for member in members.values():
            wait_for_sharing([member], feed.partitions)
        feed.send()
        for member in members.values():
            wait_for_records([member], feed.sent)
        assert commit_code(wire, calm.member_id, calm.generation_id, 5) == ErrorCode.NONE
        before = {kind: busy_members(wire, kind) for kind in KINDS}
        owned = {kind: set(member.assigned) for kind, member in members.items()}

        for node_id in (2, 3):
            brokers.nodes[node_id].kill()
        brokers.await_isr(OFFSETS, 1)
        brokers.await_isr(TOPIC, 1)
        for offset in (6, 7):
            feed.send()
            for member in members.values():
                wait_for_records([member], feed.sent)
            assert commit_code(wire, calm.member_id, calm.generation_id, offset) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert wire.ask(beat(CALM, calm.member_id, calm.generation_id)).error_code == ErrorCode.NONE
            (told,) = wire.ask(fetch(CALM, topics={TOPIC: [0]}), 9).groups
            assert (told.error_code, told.topics[0].partitions[0].committed_offset) == (ErrorCode.NONE, 5)

        brokers.start([2])
        brokers.await_isr(OFFSETS, 1, 2)
        ends = [sum(part == index for _, part, _, _ in feed.sent) for index in range(PARTITIONS)]
        for kind in KINDS:
            wait_until(lambda k=kind: committed(brokers, f"{BUSY}-{k}") == ends, 20, "all is committed")  # type: ignore[misc]
        assert commit_code(wire, calm.member_id, calm.generation_id, 8) == ErrorCode.NONE
        (told,) = wire.ask(fetch(CALM, topics={TOPIC: [0]}), 9).groups
        assert told.topics[0].partitions[0].committed_offset == 8
        assert wire.ask(beat(CALM, calm.member_id, calm.generation_id)).error_code == ErrorCode.NONE
        feed.send()
        for kind, member in members.items():
            wait_for_records([member], feed.sent)
            assert set(member.assigned) == owned[kind], kind
            assert busy_members(wire, kind) == before[kind], kind
        said = (brokers.nodes[1].directory / "server.log").read_text()
        assert "reads its log again" not in said
    finally:
        wire.socket.close()
        feed.close()
        for member in members.values():
            member.close()


def busy_members(wire: Wire, kind: str) -> list[tuple[int, str]]:
    """Ids of members and, where it is told, the epoch that each rebalance would raise."""
    group = f"{BUSY}-{kind}"
    if kind == "consumer":
        (found,) = wire.ask(ConsumerGroupDescribeRequest(group_ids=[group])).groups
        return [(found.group_epoch, member.member_id) for member in found.members]
    (described,) = wire.ask(DescribeGroupsRequest(groups=[group])).groups
    assert described.group_state == "Stable", described
    return [(0, member.member_id) for member in described.members]


def commit_code(wire: Wire, member: str, generation: int, offset: int) -> int:
    answer = wire.ask(commit(CALM, TOPIC, offset=offset, member=member, generation=generation), 8)
    return int(answer.topics[0].partitions[0].error_code)
