"""What an assignor is given, and the order in which it looks at it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from struct import unpack
from typing import NamedTuple, TypeVar

from broker.coordinator.partitioning import java_hash
from protocol.uuids import Uuid

Assignment = dict[Uuid, frozenset[int]]

T = TypeVar("T")


class MemberSpec(NamedTuple):
    instance_id: str | None
    subscribed: frozenset[Uuid]
    """Only topics that exist."""
    assigned: Mapping[Uuid, frozenset[int]]
    """The member's target until now."""


class GroupSpec(NamedTuple):
    members: Mapping[str, MemberSpec]
    is_homogeneous: bool
    """All members are subscribed to the same topics."""
    partition_counts: Mapping[Uuid, int]


# The uniform assignor serves members and topics in the order in which it meets them, and in Apache Kafka that is the
# order of a Java hash map: a fixed order, but not a sorted one. The same order here means that a group gets the same
# partitions from either broker, for example after a migration.


def members_in_order(spec: GroupSpec) -> list[str]:
    return _hash_order(
        spec.members, [java_hash(member_id) & 0xFFFFFFFF for member_id in spec.members], _grown(len(spec.members))
    )


def topics_in_order(topics: Collection[Uuid]) -> list[Uuid]:
    return _hash_order(topics, [uuid_hash(topic) for topic in topics], _copied(len(topics)))


def partitions_in_order(partitions: Collection[int]) -> list[int]:
    ascending = sorted(partitions)
    return _hash_order(ascending, ascending, _copied(len(ascending)))


def uuid_hash(uuid: Uuid) -> int:
    most, least = unpack(">QQ", uuid)
    mixed = most ^ least
    return int((mixed >> 32) ^ (mixed & 0xFFFFFFFF))


def uuid_sort_key(uuid: Uuid) -> tuple[int, int]:
    """Kafka compares the halves as signed numbers."""
    most, least = unpack(">qq", uuid)
    return most, least


def _hash_order(items: Iterable[T], hashes: Iterable[int], capacity: int) -> list[T]:
    """By bucket; within one bucket in the order of insertion."""
    keyed = [((h ^ (h >> 16)) & (capacity - 1), item) for h, item in zip(hashes, items, strict=True)]
    keyed.sort(key=lambda pair: pair[0])
    return [item for _, item in keyed]


def _grown(size: int) -> int:
    """Capacity of a map that was filled one by one: it doubles when more than three quarters full."""
    capacity = 16
    while size > capacity * 3 // 4:
        capacity *= 2
    return capacity


def _copied(size: int) -> int:
    """Capacity of a set made from a collection."""
    capacity = 16
    while capacity < size * 4 // 3 + 1:
        capacity *= 2
    return capacity
