"""Records into state: the only way in which a consumer group changes, while it runs and when it is loaded."""

from __future__ import annotations

from dataclasses import replace

from broker.coordinator.group.base import ShardState
from broker.coordinator.group.consumer.group import NO_ASSIGNMENT_EPOCH, ConsumerGroup
from broker.coordinator.group.consumer.group_records import member_from, owned_from, state_from
from broker.coordinator.group.consumer.member import LEAVE_EPOCH, NOTHING, ConsumerMember, ResolvedRegex
from broker.coordinator.records import CoordinatorRecord
from protocol.coordinator.consumer_group_current_member_assignment import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
)
from protocol.coordinator.consumer_group_member_metadata import (
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
)
from protocol.coordinator.consumer_group_target_assignment_metadata import (
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from protocol.coordinator.group_metadata import GroupMetadataKey
from protocol.schema import Message


def replay(shard: ShardState, record: CoordinatorRecord) -> None:
    """One record of a consumer group, or the tombstone of the classic group that it was before.

    A value makes the group if it is not there, also in place of the classic group that offsets alone imply: in the
    log they may stand before the group's own records. A tombstone of what is not there changes nothing.
    """
    key, value = record.key, record.value
    if isinstance(key, GroupMetadataKey):
        if value is None and key.group in shard.groups and shard.find(key.group, ConsumerGroup) is None:
            shard.drop(key.group)
        return
    group_id: str = key.group_id  # type: ignore[attr-defined]
    group = shard.find(group_id, ConsumerGroup)
    if group is None:
        if value is None:
            return
        group = ConsumerGroup(group_id, shard.timers)
        shard.put(group)
    if isinstance(key, ConsumerGroupMetadataKey) and value is None:
        shard.drop(group_id)
    else:
        apply(group, key, value)


def apply(group: ConsumerGroup, key: Message, value: Message | None) -> None:
    """A record of this group, other than the one that ends it."""
    if isinstance(key, ConsumerGroupMetadataKey):
        assert isinstance(value, ConsumerGroupMetadataValue)
        group.group_epoch = value.epoch
        group.metadata_hash = value.metadata_hash
    elif isinstance(key, ConsumerGroupMemberMetadataKey):
        _apply_member(group, key.member_id, value)
    elif isinstance(key, ConsumerGroupTargetAssignmentMetadataKey):
        group.assignment_epoch, group.assignment_timestamp_ms = NO_ASSIGNMENT_EPOCH, 0
        if value is not None:
            assert isinstance(value, ConsumerGroupTargetAssignmentMetadataValue)
            group.assignment_epoch = value.assignment_epoch
            group.assignment_timestamp_ms = value.assignment_timestamp
    elif isinstance(key, ConsumerGroupTargetAssignmentMemberKey):
        group.targets.pop(key.member_id, None)
        if value is not None:
            assert isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
            group.targets[key.member_id] = {
                topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions
            }
    elif isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
        _apply_current(group, key.member_id, value)
    elif isinstance(key, ConsumerGroupRegularExpressionKey):
        resolved = None
        if value is not None:
            assert isinstance(value, ConsumerGroupRegularExpressionValue)
            resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
        group.update_regex(key.regular_expression, resolved)
    elif isinstance(key, ConsumerGroupPartitionMetadataKey):
        group.has_partition_metadata_record = value is not None
    else:
        raise AssertionError(f"not a record of a consumer group: {key!r}")


def _apply_member(group: ConsumerGroup, member_id: str, value: Message | None) -> None:
    if value is not None:
        assert isinstance(value, ConsumerGroupMemberMetadataValue)
        group.update_member(member_from(group.members.get(member_id, ConsumerMember(member_id)), value))
    elif member_id in group.members:
        group.remove_member(member_id)


def _apply_current(group: ConsumerGroup, member_id: str, value: Message | None) -> None:
    member = group.members.get(member_id)
    if value is None:
        if member is not None:
            left = replace(
                member,
                member_epoch=LEAVE_EPOCH,
                previous_member_epoch=LEAVE_EPOCH,
                assigned=NOTHING,
                pending_revocation=NOTHING,
            )
            group.update_member(left)
        return
    assert isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
    group.update_member(
        replace(
            member or ConsumerMember(member_id),
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=state_from(value.state),
            assigned=owned_from(value.assigned_partitions, value.member_epoch),
            pending_revocation=owned_from(value.partitions_pending_revocation, value.member_epoch),
        )
    )
