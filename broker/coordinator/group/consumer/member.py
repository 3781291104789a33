"""A member of a consumer group: an immutable value, so that old and new can be compared to see what changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final, NamedTuple

from protocol.uuids import Uuid

LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
JOIN_EPOCH: Final = 0

Owned = Mapping[Uuid, Mapping[int, int]]
"""Partitions by topic, each with the epoch at which the member got it. A late commit is judged by that epoch."""
Target = Mapping[Uuid, frozenset[int]]

NOTHING: Final[Mapping[Uuid, Mapping[int, int]]] = {}
NO_TARGET: Final[Mapping[Uuid, frozenset[int]]] = {}


class MemberState(IntEnum):
    """As stored in ConsumerGroupCurrentMemberAssignment."""

    STABLE = 0
    """Has all of its target at its epoch."""
    UNREVOKED_PARTITIONS = 1
    """Was told to give partitions up and has not said that it did; until then its epoch stands still."""
    UNRELEASED_PARTITIONS = 2
    """Waits for partitions that others have not given up."""
    UNKNOWN = 127
    """Written by a newer broker."""


class ClassicProtocols(NamedTuple):
    """What a member that speaks the classic protocol told in its JoinGroup."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ResolvedRegex(NamedTuple):
    topics: frozenset[str]
    version: int
    """Offset of the metadata image that the topics were found in."""
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """``classic`` is None for a member that speaks the consumer protocol."""

    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str | None = ""
    server_assignor: str | None = None
    state: MemberState = MemberState.STABLE
    assigned: Owned = field(default_factory=dict)
    pending_revocation: Owned = field(default_factory=dict)
    classic: ClassicProtocols | None = None

    @property
    def regex(self) -> str | None:
        """The regular expression, or None where there is none; an empty one means that the member took it back."""
        return self.subscribed_topic_regex or None

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == target_epoch

    def with_epoch(self, member_epoch: int) -> ConsumerMember:
        """The epoch before is remembered: the member may not have heard of the new one (a lost response)."""
        return replace(self, member_epoch=member_epoch, previous_member_epoch=self.member_epoch)

    def assignment_epoch(self, topic_id: Uuid, partition: int) -> int | None:
        """The epoch at which it got a partition that it has, or has yet to give up."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.pending_revocation.get(topic_id, {}).get(partition) if epoch is None else epoch


def without_epochs(owned: Owned) -> Target:
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}


def with_epoch(target: Target, epoch: int) -> Owned:
    return {topic_id: dict.fromkeys(sorted(partitions), epoch) for topic_id, partitions in target.items()}


def owned_pairs(owned: Owned) -> Iterable[tuple[Uuid, int]]:
    return ((topic_id, partition) for topic_id, partitions in owned.items() for partition in partitions)
