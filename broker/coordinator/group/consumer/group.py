"""A consumer group: what its records say, and what follows from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import NamedTuple

from broker.coordinator.group.base import (
    CONSUMER_PROTOCOL_TYPE,
    ExpirationBase,
    Group,
    GroupType,
    PartitionCheck,
)
from broker.coordinator.group.consumer import group_records as records
from broker.coordinator.group.consumer.member import (
    NO_TARGET,
    ConsumerMember,
    MemberState,
    Owned,
    ResolvedRegex,
    Target,
    owned_pairs,
)
from broker.coordinator.group.timers import Timers
from broker.coordinator.records import CoordinatorRecord
from protocol.errors import ApiError, ErrorCode
from protocol.uuids import Uuid

NO_ASSIGNMENT_EPOCH = -1
FIRST_EPOCH = 1
"""Of a group of which nothing is stored. Not 0, which a member could not tell from the epoch it joins with: one that
joins with a regular expression is answered before the broker knows its topics."""

_EPOCH_COMMITS_SINCE = 9
"""The first OffsetCommit whose generation may be a member epoch."""
_MEMBER_TIMERS = ("session", "rebalance", "join", "sync")


class SubscriptionCount(NamedTuple):
    """How many members named a topic, and how many resolved regular expressions match it."""

    by_name: int = 0
    by_regex: int = 0


Subscriptions = dict[str, SubscriptionCount]


def count(subscriptions: Subscriptions, topics: Iterable[str], *, by_name: int = 0, by_regex: int = 0) -> None:
    for topic in topics:
        old = subscriptions.get(topic, SubscriptionCount())
        new = SubscriptionCount(old.by_name + by_name, old.by_regex + by_regex)
        if new == (0, 0):
            subscriptions.pop(topic, None)
        else:
            subscriptions[topic] = new


def is_homogeneous(regexes: Mapping[str, int], subscriptions: Subscriptions, members: int) -> bool:
    """Whether all members want the same topics: all named all of them, or all gave the same regular expression."""
    if not regexes:
        return all(subscribed.by_name == members for subscribed in subscriptions.values())
    if next(iter(regexes.values())) != members:
        return False
    return all(subscribed == (0, 1) for subscribed in subscriptions.values())


class ConsumerGroup(Group):
    """Changed only by replaying records: through the methods under "state" below.

    ``partition_epochs`` holds, for each partition that a member has or has yet to give up, the epoch of that member:
    a partition is handed on only when it is gone from here. The rest (counts of subscriptions, regular expressions,
    assignors, classic protocols) is kept along, because a heartbeat must not look at all members.
    """

    __slots__ = (
        "_is_refresh_due",
        "assignment_epoch",
        "assignment_timestamp_ms",
        "assignors",
        "classic_protocols",
        "group_epoch",
        "group_id",
        "has_partition_metadata_record",
        "is_dead",
        "members",
        "metadata_hash",
        "partition_epochs",
        "regexes",
        "resolved_regexes",
        "static_members",
        "subscriptions",
        "targets",
        "timers",
    )

    group_type = GroupType.CONSUMER

    def __init__(self, group_id: str, timers: Timers) -> None:
        self.group_id = group_id
        self.timers = timers
        self.group_epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        self.static_members: dict[str, str] = {}
        self.targets: dict[str, Target] = {}
        self.partition_epochs: dict[tuple[Uuid, int], int] = {}
        self.subscriptions: Subscriptions = {}
        self.regexes: Counter[str] = Counter()
        self.resolved_regexes: dict[str, ResolvedRegex] = {}
        self.assignors: Counter[str] = Counter()
        self.classic_protocols: Counter[str] = Counter()
        self.has_partition_metadata_record = False
        self.is_dead = False
        self._is_refresh_due = True

    # --- looks ------------------------------------------------------------------------------------------------------

    def member_or_raise(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target_of(self, member: ConsumerMember) -> Target:
        """A static member's target is that of whoever has its instance id: it may be about to replace that one."""
        member_id: str | None = member.member_id
        if member.instance_id is not None:
            member_id = self.static_members.get(member.instance_id)
        return NO_TARGET if member_id is None else self.targets.get(member_id, NO_TARGET)

    def partition_epoch(self, topic_id: Uuid, partition: int) -> int | None:
        return self.partition_epochs.get((topic_id, partition))

    @property
    def classic_count(self) -> int:
        return sum(member.classic is not None for member in self.members.values())

    def is_classic_without(self, leaving: Collection[ConsumerMember]) -> bool:
        """Whether only members of the classic protocol would be left."""
        gone = {member.member_id for member in leaving}
        return all(member.classic is not None for member in self.members.values() if member.member_id not in gone)

    def supports_classic_protocols(self, protocol_type: str, names: Collection[str]) -> bool:
        if protocol_type != CONSUMER_PROTOCOL_TYPE:
            return False
        if self.is_empty():
            return bool(names)
        everyone = self.classic_count
        return any(self.classic_protocols[name] == everyone for name in names)

    def is_waiting_for_release(self, member: ConsumerMember) -> bool:
        """Whether somebody still has a partition of the member's target."""
        return member.state is MemberState.UNRELEASED_PARTITIONS and any(
            partition not in member.assigned.get(topic_id, {}) and (topic_id, partition) in self.partition_epochs
            for topic_id, partitions in self.targets.get(member.member_id, NO_TARGET).items()
            for partition in partitions
        )

    # --- what if a member changed -----------------------------------------------------------------------------------

    def subscriptions_with(self, old: ConsumerMember | None, new: ConsumerMember | None) -> Subscriptions:
        subscriptions = dict(self.subscriptions)
        if old is not None:
            count(subscriptions, old.subscribed_topic_names, by_name=-1)
            if old.regex is not None and (new is None or new.regex != old.regex) and self.regexes[old.regex] == 1:
                resolved = self.resolved_regexes.get(old.regex)
                count(subscriptions, resolved.topics if resolved else (), by_regex=-1)
        if new is not None:
            count(subscriptions, new.subscribed_topic_names, by_name=1)
        return subscriptions

    def subscriptions_without(
        self, leaving: Collection[ConsumerMember], dropped_regexes: Collection[str]
    ) -> Subscriptions:
        subscriptions = dict(self.subscriptions)
        for member in leaving:
            count(subscriptions, member.subscribed_topic_names, by_name=-1)
        for regex in dropped_regexes:
            resolved = self.resolved_regexes.get(regex)
            count(subscriptions, resolved.topics if resolved else (), by_regex=-1)
        return subscriptions

    def regexes_with(self, old: ConsumerMember, new: ConsumerMember) -> Counter[str]:
        regexes = Counter(self.regexes)
        if old.regex != new.regex:
            if old.regex is not None:
                regexes[old.regex] -= 1
            if new.regex is not None:
                regexes[new.regex] += 1
        return +regexes

    def preferred_assignor(self, old: ConsumerMember | None = None, new: ConsumerMember | None = None) -> str | None:
        """The one that most members ask for."""
        assignors = Counter(self.assignors)
        if old is not None and old.server_assignor is not None:
            assignors[old.server_assignor] -= 1
        if new is not None and new.server_assignor is not None:
            assignors[new.server_assignor] += 1
        wanted = sorted((+assignors).items())
        return max(wanted, key=lambda pair: pair[1])[0] if wanted else None

    # --- refresh of the metadata ------------------------------------------------------------------------------------

    @property
    def is_refresh_due(self) -> bool:
        """Whether the topics may differ from those that the group's hash was made of. Not stored: true after load."""
        return self._is_refresh_due

    def request_refresh(self) -> None:
        self._is_refresh_due = True

    def on_refreshed(self) -> None:
        self._is_refresh_due = False

    # --- state, as records change it --------------------------------------------------------------------------------

    def update_member(self, member: ConsumerMember) -> None:
        old = self.members.get(member.member_id)
        if old is not None:
            self._forget(old)
        self.members[member.member_id] = member
        count(self.subscriptions, member.subscribed_topic_names, by_name=1)
        if member.regex is not None:
            self.regexes[member.regex] += 1
        if member.server_assignor is not None:
            self.assignors[member.server_assignor] += 1
        if member.classic is not None:
            self.classic_protocols.update({name for name, _ in member.classic.protocols})
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self._take(member.assigned, member.member_epoch)
        self._take(member.pending_revocation, member.member_epoch)

    def remove_member(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        self._forget(member)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]

    def update_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        old = self.resolved_regexes.pop(regex, None)
        if old is not None:
            count(self.subscriptions, old.topics, by_regex=-1)
        if resolved is not None:
            self.resolved_regexes[regex] = resolved
            count(self.subscriptions, resolved.topics, by_regex=1)

    def _forget(self, member: ConsumerMember) -> None:
        count(self.subscriptions, member.subscribed_topic_names, by_name=-1)
        if member.regex is not None:
            self.regexes[member.regex] -= 1
            self.regexes = +self.regexes
        if member.server_assignor is not None:
            self.assignors[member.server_assignor] -= 1
            self.assignors = +self.assignors
        if member.classic is not None:
            self.classic_protocols.subtract({name for name, _ in member.classic.protocols})
            self.classic_protocols = +self.classic_protocols
        self._release(member.assigned, member.member_epoch)
        self._release(member.pending_revocation, member.member_epoch)

    def _take(self, owned: Owned, epoch: int) -> None:
        """Only a newer epoch may take a partition that is still there: compaction may have left its old owner."""
        for pair in owned_pairs(owned):
            held_at = self.partition_epochs.get(pair)
            if held_at is not None and held_at >= epoch:
                raise AssertionError(f"{self.group_id}: {pair} is still owned at epoch {held_at}, not yet at {epoch}")
            self.partition_epochs[pair] = epoch

    def _release(self, owned: Owned, epoch: int) -> None:
        for pair in owned_pairs(owned):
            if self.partition_epochs.get(pair) == epoch:
                del self.partition_epochs[pair]

    # --- Group ------------------------------------------------------------------------------------------------------

    def state_name(self) -> str:
        if self.is_dead:
            return "Dead"
        if not self.members:
            return "Empty"
        if self.group_epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def listed_protocol_type(self) -> str:
        return CONSUMER_PROTOCOL_TYPE

    def is_empty(self) -> bool:
        return not self.members

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscriptions

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, is_transactional: bool, api_version: int
    ) -> PartitionCheck | None:
        """An older epoch is good for partitions that the member has had since then (KIP-1251)."""
        if generation < 0 and not self.members:
            return None
        if is_transactional and generation == -1 and not member_id and instance_id is None:
            return None
        member = self.member_or_raise(member_id)
        if not is_transactional and member.classic is None and api_version < _EPOCH_COMMITS_SINCE:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
            )
        if generation == member.member_epoch:
            return None
        if generation > member.member_epoch:
            raise _stale(member, generation, f"is newer than current member epoch {member.member_epoch}.")

        def check(topic: str, topic_id: Uuid, partition: int) -> None:
            assigned_at = member.assignment_epoch(topic_id, partition)
            if assigned_at is None:
                raise _stale(member, generation, f"and {topic}-{partition} is not assigned to the member.")
            if generation < assigned_at:
                raise _stale(
                    member, generation, f"is older than assignment epoch {assigned_at} for {topic}-{partition}."
                )

        return check

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = self.member_or_raise(member_id or "")
        if member_epoch != member.member_epoch:
            raise _stale(member, member_epoch, f"does not match the expected member epoch {member.member_epoch}.")

    def check_offset_delete(self) -> None:
        """Always: the offsets of subscribed topics are protected one by one."""

    def check_delete(self) -> None:
        if self.members:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)

    def tombstones(self) -> list[CoordinatorRecord]:
        return self.tombstones_for(self.members)

    def tombstones_for(self, member_ids: Iterable[str]) -> list[CoordinatorRecord]:
        group_id = self.group_id
        ids = list(member_ids)
        return [
            *(records.current_tombstone(group_id, member_id) for member_id in ids),
            *(records.target_tombstone(group_id, member_id) for member_id in ids),
            records.target_metadata_tombstone(group_id),
            *(records.member_tombstone(group_id, member_id) for member_id in ids),
            *(records.regex_tombstone(group_id, regex) for regex in self.resolved_regexes),
            records.partition_metadata_tombstone(group_id),
            records.epoch_tombstone(group_id),
        ]

    def expiration_base(self) -> ExpirationBase | None:
        return ExpirationBase(None)

    def on_removed(self) -> None:
        self.is_dead = True
        for member_id in self.members:
            self.cancel_timers(member_id)

    # --- deadlines --------------------------------------------------------------------------------------------------

    def timer_key(self, kind: str, member_id: str) -> Hashable:
        return ("consumer", self.group_id, kind, member_id)

    def cancel_timers(self, member_id: str) -> None:
        for kind in _MEMBER_TIMERS:
            self.timers.cancel(self.timer_key(kind, member_id))


def _stale(member: ConsumerMember, received: int, problem: str) -> ApiError:
    if member.classic is not None:
        return ApiError(ErrorCode.ILLEGAL_GENERATION, f"The received generation id {received} {problem}")
    return ApiError(ErrorCode.STALE_MEMBER_EPOCH, f"The received member epoch {received} {problem}")
