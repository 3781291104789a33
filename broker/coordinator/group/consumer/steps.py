"""The steps that a heartbeat and a classic join have in common: subscribe, new epoch, new target, reconcile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from broker.coordinator.group.base import ShardState
from broker.coordinator.group.consumer import group_records
from broker.coordinator.group.consumer.deadlines import Deadlines
from broker.coordinator.group.consumer.group import ConsumerGroup, is_homogeneous
from broker.coordinator.group.consumer.group_records import Records
from broker.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    MemberState,
    Owned,
    Target,
)
from broker.coordinator.group.consumer.metadata_hash import MetadataHashes
from broker.coordinator.group.consumer.reconcile import Goal, TopicPartitions, reconcile
from broker.coordinator.group.consumer.target import TargetRequest, build_target
from protocol.errors import ApiError, ErrorCode


class Planned(NamedTuple):
    """The group's epoch after a step, and whether its members then want the same topics."""

    group_epoch: int
    is_homogeneous: bool | None = None
    """None where nothing changed: most heartbeats do not need to know."""


class Steps:
    """None of these changes the group: they add records, which are applied when the whole request is through."""

    __slots__ = ("_deadlines", "_hashes", "_shard")

    def __init__(self, shard: ShardState, hashes: MetadataHashes, deadlines: Deadlines) -> None:
        self._shard = shard
        self._hashes = hashes
        self._deadlines = deadlines

    # --- members ----------------------------------------------------------------------------------------------------

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        limit = self._shard.config.consumer_max_size
        if len(group.members) >= limit and member_id not in group.members:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    def static_join(
        self, group: ConsumerGroup, member_id: str, instance_id: str, records: Records, *, is_classic: bool
    ) -> ConsumerMember:
        """A new member for the instance id. It takes over all that the one before it had, under its own id.

        A native member may do so only after the one before it said that it leaves for a while (epoch -2).
        """
        existing = group.static_member(instance_id)
        if existing is None:
            return group.members.get(member_id) or ConsumerMember(member_id)
        if not is_classic and existing.classic is None and existing.member_epoch != STATIC_LEAVE_EPOCH:
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance "
                f"id is owned by {existing.member_id} member.",
            )
        taking_over = replace(existing, member_id=member_id, member_epoch=JOIN_EPOCH, previous_member_epoch=JOIN_EPOCH)
        group_id = group.group_id
        records.extend(group_records.removal(group_id, existing.member_id))
        records.append(group_records.member_record(group_id, taking_over))
        target = group.targets.get(existing.member_id, {})
        records.append(group_records.target_record(group_id, member_id, target))
        records.append(group_records.current_record(group_id, taking_over))
        return taking_over

    def static_member_or_raise(self, group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
        existing = group.static_member(instance_id)
        if existing is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if existing.member_id != member_id:
            raise ApiError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {existing.member_id}.",
            )
        return existing

    # --- epochs and targets -----------------------------------------------------------------------------------------

    def has_subscription_changed(
        self, group: ConsumerGroup, old: ConsumerMember, new: ConsumerMember, records: Records
    ) -> bool:
        """Writes the member if it differs in anything; true if the topics that it named do."""
        if new == old:
            return False
        records.append(group_records.member_record(group.group_id, new))
        return new.subscribed_topic_names != old.subscribed_topic_names

    def refresh_metadata(
        self, group: ConsumerGroup, old: ConsumerMember, new: ConsumerMember, records: Records, *, bump: bool
    ) -> Planned:
        """A new group epoch if ``bump``, or if what is known of the topics differs from what it was."""
        subscriptions = group.subscriptions_with(old, new)
        metadata_hash = self._hashes.group_hash(subscriptions, self._shard.image)
        is_known = new.member_id in group.members or group.static_member(new.instance_id) is not None
        members = len(group.members) + (not is_known)
        group_epoch = group.group_epoch
        if bump or metadata_hash != group.metadata_hash:
            group_epoch += 1
            records.append(group_records.epoch_record(group.group_id, group_epoch, metadata_hash))
        group.on_refreshed()
        if group.has_partition_metadata_record:
            records.append(group_records.partition_metadata_tombstone(group.group_id))
        return Planned(group_epoch, is_homogeneous(group.regexes_with(old, new), subscriptions, members))

    def update_target(
        self,
        now_ms: int,
        group: ConsumerGroup,
        planned: Planned,
        old: ConsumerMember,
        new: ConsumerMember,
        records: Records,
    ) -> tuple[int, Target]:
        """The target of the member and its epoch: a new one if the group's epoch is ahead, but not too often.

        The assignment interval keeps a group whose members all join at once from being assigned at every join.
        """
        interval_ms = self._deadlines.assignment_interval_ms(group.group_id)
        last_ms = group.assignment_timestamp_ms
        is_too_soon = last_ms != 0 and interval_ms != 0 and now_ms < last_ms + interval_ms
        if group.assignment_epoch >= planned.group_epoch or is_too_soon:
            return group.assignment_epoch, group.target_of(new)
        assignor = group.preferred_assignor(old, new) or self._shard.config.consumer_assignors[0]
        is_alike = planned.is_homogeneous
        if is_alike is None:
            is_alike = is_homogeneous(group.regexes, group.subscriptions, len(group.members))
        request = TargetRequest(group, planned.group_epoch, new, is_alike, assignor)
        return planned.group_epoch, build_target(request, self._shard.image, now_ms, records)

    def reconcile(
        self,
        now_ms: int,
        group: ConsumerGroup,
        member: ConsumerMember,
        target: tuple[int, Target],
        owned: Sequence[TopicPartitions] | None,
        records: Records,
        *,
        has_subscription_changed: bool,
    ) -> ConsumerMember:
        target_epoch, partitions = target
        if not has_subscription_changed and member.is_reconciled_to(target_epoch):
            return member
        goal = Goal(
            target_epoch=target_epoch,
            target=partitions,
            image=self._shard.image,
            regexes=group.resolved_regexes,
            partition_epoch=group.partition_epoch,
            has_subscription_changed=has_subscription_changed,
            owned=owned,
        )
        updated = reconcile(member, goal)
        if updated == member:
            return member
        records.append(group_records.current_record(group.group_id, updated))
        if updated.classic is None:
            if updated.state is MemberState.UNREVOKED_PARTITIONS:
                self._deadlines.schedule_revocation(now_ms, group.group_id, updated)
            else:
                self._deadlines.cancel_revocation(group.group_id, updated.member_id)
        return updated


def check_epoch(member: ConsumerMember, epoch: int, owned: Sequence[TopicPartitions] | None) -> None:
    """FENCED_MEMBER_EPOCH unless the epoch is the member's, or the one before it and its response may have been lost.

    In the latter case the member knows nothing of the new epoch and must not own more than it was given with it.
    """
    if epoch == JOIN_EPOCH or epoch == member.member_epoch:
        return
    if epoch < member.member_epoch and epoch == member.previous_member_epoch and _is_subset(owned, member.assigned):
        return
    relation = "greater" if epoch > member.member_epoch else "smaller"
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_subset(owned: Sequence[TopicPartitions] | None, assigned: Owned) -> bool:
    return owned is not None and all(
        reported.topic_id in assigned
        and all(partition in assigned[reported.topic_id] for partition in reported.partitions)
        for reported in owned
    )
