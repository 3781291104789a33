"""The records of a consumer group, as Apache Kafka 4.3.1 writes them."""

from __future__ import annotations

from collections.abc import Mapping

from broker.coordinator.group.consumer.member import (
    ClassicProtocols,
    ConsumerMember,
    MemberState,
    Owned,
    ResolvedRegex,
    Target,
)
from broker.coordinator.records import CoordinatorRecord, tombstone
from protocol.coordinator.consumer_group_current_member_assignment import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from protocol.coordinator.consumer_group_member_metadata import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from protocol.coordinator.consumer_group_metadata import ConsumerGroupMetadataKey, ConsumerGroupMetadataValue
from protocol.coordinator.consumer_group_partition_metadata import ConsumerGroupPartitionMetadataKey
from protocol.coordinator.consumer_group_regular_expression import (
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)
from protocol.coordinator.consumer_group_target_assignment_member import (
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from protocol.coordinator.consumer_group_target_assignment_metadata import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from protocol.uuids import Uuid

Records = list[CoordinatorRecord]


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    classic = None
    if member.classic is not None:
        classic = ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.classic.protocols
            ],
        )
    value = ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=classic,
    )
    key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return CoordinatorRecord(key, value)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return CoordinatorRecord(ConsumerGroupMetadataKey(group_id=group_id), value)


def target_record(group_id: str, member_id: str, target: Target) -> CoordinatorRecord:
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            TopicPartition(topic_id=topic_id, partitions=sorted(partitions)) for topic_id, partitions in target.items()
        ]
    )
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def target_metadata_record(group_id: str, assignment_epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    value = ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=assignment_epoch, assignment_timestamp=timestamp_ms
    )
    return CoordinatorRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def current_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        assigned_partitions=_with_epochs(member.assigned),
        partitions_pending_revocation=_with_epochs(member.pending_revocation),
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return CoordinatorRecord(key, value)


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    value = ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return CoordinatorRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), value)


# --- tombstones -----------------------------------------------------------------------------------------------------


def current_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return tombstone(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id))


def target_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return tombstone(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id))


def member_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    return tombstone(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id))


def target_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    return tombstone(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id))


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    return tombstone(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex))


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """Of a record that brokers before 4.1 wrote; since then the hash in ConsumerGroupMetadata takes its place."""
    return tombstone(ConsumerGroupPartitionMetadataKey(group_id=group_id))


def epoch_tombstone(group_id: str) -> CoordinatorRecord:
    return tombstone(ConsumerGroupMetadataKey(group_id=group_id))


def removal(group_id: str, member_id: str) -> Records:
    """A member goes in this order, so that no reader of the log meets an assignment without its member."""
    return [
        current_tombstone(group_id, member_id),
        target_tombstone(group_id, member_id),
        member_tombstone(group_id, member_id),
    ]


# --- back from records ----------------------------------------------------------------------------------------------


def member_from(member: ConsumerMember, value: ConsumerGroupMemberMetadataValue) -> ConsumerMember:
    """The member with what the record says of its subscription; its assignment is another record's."""
    stored = value.classic_member_metadata
    classic = None
    if stored is not None:
        protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in stored.supported_protocols)
        classic = ClassicProtocols(stored.session_timeout_ms, protocols)
    return ConsumerMember(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=frozenset(value.subscribed_topic_names),
        subscribed_topic_regex=value.subscribed_topic_regex,
        server_assignor=value.server_assignor,
        state=member.state,
        assigned=member.assigned,
        pending_revocation=member.pending_revocation,
        classic=classic,
    )


def owned_from(stored: list[TopicPartitions], member_epoch: int) -> Owned:
    """Brokers before 4.3 wrote no epochs: the member's own stands in for them."""
    default = max(member_epoch, 0)
    owned: dict[Uuid, Mapping[int, int]] = {}
    for topic in stored:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [default] * len(topic.partitions)
        owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return owned


def state_from(stored: int) -> MemberState:
    return MemberState(stored) if stored in MemberState.__members__.values() else MemberState.UNKNOWN


def _with_epochs(owned: Owned) -> list[TopicPartitions]:
    topics = []
    for topic_id, partitions in owned.items():
        ascending = sorted(partitions)
        epochs = [partitions[partition] for partition in ascending]
        topics.append(TopicPartitions(topic_id=topic_id, partitions=ascending, assignment_epochs=epochs))
    return topics
