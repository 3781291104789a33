"""Requests of the group APIs, with as few words as a test wants to spend on them."""

from __future__ import annotations

from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from protocol.uuids import Uuid

NOBODY = "nobody-11111111-2222-3333-4444-555555555555"
SESSION_MS = 30_000


def subscription(*topics: str) -> bytes:
    """int16 version, then the subscription: what consumers put into the metadata of their protocols."""
    return b"\0\1" + ConsumerProtocolSubscription(topics=list(topics)).encode(1)


def assignment() -> bytes:
    return b"\0\0" + ConsumerProtocolAssignment().encode(0)


def join(
    group: str,
    member: str = "",
    *,
    instance: str | None = None,
    kind: str = "consumer",
    protocols: tuple[str, ...] = ("range",),
    topics: tuple[str, ...] = ("none",),
    session_ms: int = SESSION_MS,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=SESSION_MS,
        member_id=member,
        group_instance_id=instance,
        protocol_type=kind,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=subscription(*topics)) for name in protocols],
    )


def sync(
    group: str,
    member: str,
    generation: int,
    *,
    instance: str | None = None,
    kind: str | None = "consumer",
    protocol: str | None = "range",
    assigned: tuple[str, ...] = (),
) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        group_instance_id=instance,
        protocol_type=kind,
        protocol_name=protocol,
        assignments=[SyncGroupRequestAssignment(member_id=name, assignment=assignment()) for name in assigned],
    )


def beat(group: str, member: str, generation: int, instance: str | None = None) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member, group_instance_id=instance)


def leave(group: str, *members: tuple[str, str | None]) -> LeaveGroupRequest:
    return LeaveGroupRequest(
        group_id=group,
        members=[MemberIdentity(member_id=member, group_instance_id=instance) for member, instance in members],
    )


def commit(
    group: str,
    topic: str,
    *partitions: int,
    offset: int = 5,
    member: str = "",
    generation: int = -1,
    instance: str | None = None,
    metadata: str | None = "note",
    topic_id: Uuid = Uuid.ZERO,
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=instance,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=topic_id,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=-1,
                        committed_metadata=metadata,
                    )
                    for index in partitions or (0,)
                ],
            )
        ],
    )


def fetch(
    *groups: str,
    topics: dict[str, list[int]] | None = None,
    ids: dict[Uuid, list[int]] | None = None,
    member: str | None = None,
    epoch: int = -1,
) -> OffsetFetchRequest:
    """All topics of each group, or those given, in the form of version 8 and later."""
    asked = None
    if topics is not None or ids is not None:
        asked = [OffsetFetchRequestTopics(name=name, partition_indexes=list(i)) for name, i in (topics or {}).items()]
        asked += [OffsetFetchRequestTopics(topic_id=one, partition_indexes=list(i)) for one, i in (ids or {}).items()]
    return OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id=group, member_id=member, member_epoch=epoch, topics=asked)
            for group in groups
        ]
    )


def old_fetch(group: str, topics: dict[str, list[int]] | None) -> OffsetFetchRequest:
    asked = None
    if topics is not None:
        asked = [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
    return OffsetFetchRequest(group_id=group, topics=asked)


def delete_offsets(group: str, topic: str, *partitions: int) -> OffsetDeleteRequest:
    indexes = [OffsetDeleteRequestPartition(partition_index=index) for index in partitions or (0,)]
    return OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=indexes)])


def consumer_beat(
    group: str,
    member: str,
    epoch: int,
    *,
    topics: list[str] | None = None,
    regex: str | None = None,
    owned: dict[Uuid, list[int]] | None = None,
    instance: str | None = None,
    assignor: str | None = None,
    rack: str | None = None,
    rebalance_ms: int = -1,
) -> ConsumerGroupHeartbeatRequest:
    partitions = None
    if owned is not None:
        partitions = [TopicPartitions(topic_id=topic, partitions=indexes) for topic, indexes in owned.items()]
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        instance_id=instance,
        rack_id=rack,
        rebalance_timeout_ms=rebalance_ms,
        subscribed_topic_names=topics,
        subscribed_topic_regex=regex,
        server_assignor=assignor,
        topic_partitions=partitions,
    )


def consumer_join(group: str, member: str, *topics: str, instance: str | None = None) -> ConsumerGroupHeartbeatRequest:
    """The first heartbeat of a member, complete as a client sends it."""
    return consumer_beat(group, member, 0, topics=list(topics), owned={}, instance=instance, rebalance_ms=SESSION_MS)
