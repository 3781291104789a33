"""From a classic group to a consumer group and back, while its members go on consuming."""

from __future__ import annotations

import struct
from collections.abc import Collection

from broker.coordinator.effects import Effects
from broker.coordinator.group.base import CONSUMER_PROTOCOL_TYPE, ShardState
from broker.coordinator.group.classic.group import ClassicGroup, ClassicMember, ClassicState
from broker.coordinator.group.classic.manager import ClassicGroups
from broker.coordinator.group.consumer import group_records
from broker.coordinator.group.consumer.group import ConsumerGroup
from broker.coordinator.group.consumer.group_records import Records
from broker.coordinator.group.consumer.member import (
    ClassicProtocols,
    ConsumerMember,
    MemberState,
    Target,
    with_epoch,
    without_epochs,
)
from broker.coordinator.group.consumer.metadata_hash import MetadataHashes
from controller.image import MetadataImage
from protocol.errors import ApiError, DecodeError, ErrorCode
from protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from protocol.messages.consumer_protocol_assignment import TopicPartition as AssignedTopic
from protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from protocol.uuids import Uuid

_UPGRADES = ("upgrade", "bidirectional")
_DOWNGRADES = ("downgrade", "bidirectional")
_NEWEST_EMBEDDED = 3
"""Version of the consumer's own protocol inside JoinGroup and SyncGroup."""


class Migration:
    __slots__ = ("_classic", "_hashes", "_shard")

    def __init__(self, shard: ShardState, classic: ClassicGroups, hashes: MetadataHashes) -> None:
        self._shard = shard
        self._classic = classic
        self._hashes = hashes

    # --- upgrade ----------------------------------------------------------------------------------------------------

    def upgrade(self, classic: ClassicGroup, records: Records) -> ConsumerGroup:
        """The same group as one of the consumer protocol; GROUP_ID_NOT_FOUND if that cannot be.

        Members keep their partitions: the generation becomes the epoch of all of them, and what they have is both
        their assignment and their target. Nothing is changed here but ``records``.
        """
        refusal = f"Cannot upgrade classic group {classic.group_id} to consumer group because "
        if self._shard.config.consumer_migration_policy.lower() not in _UPGRADES:
            raise _not_found(refusal + "online upgrade is disabled.")
        if not classic.uses_consumer_protocol:
            raise _not_found(refusal + "the group does not use the consumer embedded protocol.")
        if len(classic.members) > self._shard.config.consumer_max_size:
            raise _not_found(refusal + "the group size exceeds the consumer group maximum size.")
        group = ConsumerGroup(classic.group_id, self._shard.timers)
        group.group_epoch = group.assignment_epoch = classic.generation_id
        try:
            targets = {member.member_id: self._target_of(member, refusal) for member in classic.members.values()}
            taken = {
                (topic_id, partition)
                for target in targets.values()
                for topic_id, partitions in target.items()
                for partition in partitions
            }
            for member in classic.members.values():
                converted = self._converted(classic, member, targets[member.member_id], taken)
                group.targets[member.member_id] = targets[member.member_id]
                group.update_member(converted)
        except DecodeError:
            raise _not_found(refusal + "the embedded consumer protocol is malformed.") from None
        group.metadata_hash = self._hashes.group_hash(group.subscriptions, self._shard.image)

        group_id = group.group_id
        records.extend(classic.tombstones())
        records.extend(group_records.member_record(group_id, member) for member in group.members.values())
        records.append(group_records.epoch_record(group_id, group.group_epoch, group.metadata_hash))
        records.extend(
            group_records.target_record(group_id, member_id, group.targets[member_id]) for member_id in group.members
        )
        records.append(group_records.target_metadata_record(group_id, group.assignment_epoch, 0))
        records.extend(group_records.current_record(group_id, member) for member in group.members.values())
        return group

    def _target_of(self, member: ClassicMember, refusal: str) -> Target:
        if not member.assignment:
            return {}
        version = _version_of(member.assignment)
        assignment = ConsumerProtocolAssignment.decode(member.assignment, version, 2)
        if assignment.user_data:
            raise _not_found(
                refusal + "an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
                "default assignor before re-attempting the upgrade."
            )
        topics = self._shard.image.topics_by_name
        return {
            topics[assigned.topic].topic_id: frozenset(assigned.partitions) & topics[assigned.topic].partitions.keys()
            for assigned in assignment.assigned_partitions
            if assigned.topic in topics  # by name: it may be another topic by now, with fewer partitions
        }

    def _converted(
        self, classic: ClassicGroup, member: ClassicMember, target: Target, taken: set[tuple[Uuid, int]]
    ) -> ConsumerMember:
        """The member at the group's generation.

        A cooperative member that was assigned less than it had gives the rest up when it hears of it, which may not
        have happened yet. So what it said it owns, and nobody else was given, it has yet to give up. (Apache Kafka
        takes that for free, so that for a moment it may have two owners.)
        """
        subscription = decode_subscription(member.metadata(classic.protocol_name or "") or b"")
        generation = classic.generation_id
        topics = self._shard.image.topics_by_name
        unrevoked: dict[Uuid, dict[int, int]] = {}
        for owned in subscription.owned_partitions:
            topic = topics.get(owned.topic)
            if topic is None:
                continue
            for partition in owned.partitions:
                if (topic.topic_id, partition) not in taken and partition in topic.partitions:
                    taken.add((topic.topic_id, partition))
                    unrevoked.setdefault(topic.topic_id, {})[partition] = generation
        protocols = tuple((name, bytes(metadata)) for name, metadata in member.protocols)
        return ConsumerMember(
            member_id=member.member_id,
            member_epoch=generation,
            previous_member_epoch=generation,
            instance_id=member.instance_id,
            rack_id=subscription.rack_id or None,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=frozenset(subscription.topics),
            state=MemberState.UNREVOKED_PARTITIONS if unrevoked else MemberState.STABLE,
            assigned=with_epoch(target, generation),
            pending_revocation=unrevoked,
            classic=ClassicProtocols(member.session_timeout_ms, protocols),
        )

    # --- downgrade --------------------------------------------------------------------------------------------------

    def can_downgrade_without(self, group: ConsumerGroup, leaving: Collection[ConsumerMember]) -> bool:
        """Whether those that stay all speak the classic protocol, and the configuration lets them be a group."""
        return self._may_downgrade(len(group.members) - len(leaving)) and group.is_classic_without(leaving)

    def can_downgrade_replacing(self, group: ConsumerGroup, replaced: ConsumerMember) -> bool:
        """The same where a static member that spoke the consumer protocol comes back with the classic one."""
        is_last = replaced.classic is None and group.classic_count == len(group.members) - 1
        return is_last and self._may_downgrade(len(group.members))

    def _may_downgrade(self, size: int) -> bool:
        config = self._shard.config
        allowed = config.consumer_migration_policy.lower() in _DOWNGRADES
        return allowed and 0 < size <= config.classic_max_size

    def downgrade(
        self,
        now_ms: int,
        group: ConsumerGroup,
        leaving: Collection[ConsumerMember],
        joining: ConsumerMember | None,
        *,
        rebalance: bool,
    ) -> Effects:
        """Replaces the group by a classic one whose generation is the group's epoch.

        What each member has becomes its assignment. If that is not its target, a rebalance must settle the rest: in a
        classic group nobody waits for partitions that another one has yet to give up. (Apache Kafka hands out the
        targets, so that for a moment a partition may have two owners.)
        """
        effects = Effects()
        replaced = None if joining is None else group.static_member(joining.instance_id)
        renamed = {} if joining is None or replaced is None else {replaced.member_id: joining.member_id}
        effects.records.extend(group.tombstones_for([renamed.get(member_id, member_id) for member_id in group.members]))
        classic = ClassicGroup(group.group_id, self._shard.timers, ClassicState.STABLE, timestamp=now_ms)
        classic.generation_id = group.group_epoch
        gone = {member.member_id for member in leaving}.union(renamed)
        members = [member for member_id, member in group.members.items() if member_id not in gone]
        if joining is not None:
            members.append(joining)
        for member in members:
            classic.add(_classic_member(member))
        classic.protocol_type = CONSUMER_PROTOCOL_TYPE
        classic.protocol_name = classic.select_protocol()
        classic.subscribed_topics = classic.compute_subscribed_topics()
        for member in members:
            made = classic.members[member.member_id]
            version = _version_of(made.metadata(classic.protocol_name) or b"")
            made.assignment = encode_assignment(_has(member), version, self._shard.image)
            rebalance = rebalance or not member.is_reconciled_to(group.assignment_epoch)
        effects.extend(self._classic.adopt(now_ms, classic))
        if rebalance:
            effects.extend(self._classic.prepare_rebalance(now_ms, classic))
        return effects


def encode_assignment(target: Target, version: int, image: MetadataImage) -> bytes:
    """The bytes of a classic assignment; topics that no longer exist are left out."""
    topics = [
        AssignedTopic(topic=image.topics_by_id[topic_id].name, partitions=sorted(partitions))
        for topic_id, partitions in target.items()
        if topic_id in image.topics_by_id
    ]
    encoded = ConsumerProtocolAssignment(assigned_partitions=topics).encode(version)
    return struct.pack(">h", version) + encoded


def decode_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """A newer version than we know is read as the newest: versions only add at the end."""
    return ConsumerProtocolSubscription.decode(metadata, _version_of(metadata), 2)


def subscription_version(metadata: bytes) -> int:
    return _version_of(metadata)


def _version_of(data: bytes) -> int:
    if len(data) < 2:
        raise DecodeError("the embedded consumer protocol is shorter than its version")
    (version,) = struct.unpack_from(">h", data)
    if version < 0:
        raise DecodeError(f"the embedded consumer protocol has version {version}")
    return min(int(version), _NEWEST_EMBEDDED)


def _classic_member(member: ConsumerMember) -> ClassicMember:
    assert member.classic is not None, "only members of the classic protocol stay"
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocols=list(member.classic.protocols),
    )


def _has(member: ConsumerMember) -> Target:
    has = dict(without_epochs(member.assigned))
    for topic_id, partitions in without_epochs(member.pending_revocation).items():
        has[topic_id] = has.get(topic_id, frozenset()) | partitions
    return has


def _not_found(message: str) -> ApiError:
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, message)
