"""Committed offsets of all groups of a shard, and the records they are stored as."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from broker.coordinator.records import CoordinatorRecord, tombstone
from protocol.coordinator.offset_commit import OffsetCommitKey, OffsetCommitValue
from protocol.uuids import Uuid

INVALID_OFFSET = -1
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1

VALUE_VERSION = 4
"""What Apache Kafka 4.3.1 writes: with the topic id."""
VALUE_VERSION_WITH_EXPIRY = 1
"""The one version that can hold an expire timestamp, for commits of old clients that asked for a retention time."""

_NOTHING: Mapping[str, Mapping[int, CommittedOffset]] = MappingProxyType({})


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp: int = 0
    expire_timestamp: int = NO_TIMESTAMP
    """Set only by commits that asked for a retention time of their own; it then wins over the broker's retention."""
    topic_id: Uuid = Uuid.ZERO
    """Zero where the commit did not know it: such an offset belongs to any topic of that name."""

    @classmethod
    def from_value(cls, value: OffsetCommitValue) -> CommittedOffset:
        return cls(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
        )

    def belongs_to(self, topic_id: Uuid) -> bool:
        """Not if it was committed for an earlier topic of the same name."""
        return topic_id == Uuid.ZERO or self.topic_id in (Uuid.ZERO, topic_id)

    def is_expired(self, now_ms: int, base_ms: int | None, retention_ms: int) -> bool:
        """KIP-211: ages since the group became empty (``base_ms``), or since its own commit where there is no base."""
        if self.expire_timestamp != NO_TIMESTAMP:
            return now_ms >= self.expire_timestamp
        return now_ms - (self.commit_timestamp if base_ms is None else base_ms) >= retention_ms


class OffsetStore:
    """Group, topic, partition -> offset. Empty inner maps are never kept, so a group without offsets is not in here."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, CommittedOffset]]] = {}

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self._groups.get(group_id, _NOTHING).get(topic, {}).get(partition)

    def put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        self._groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = committed

    def remove(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether there was an offset to remove."""
        topics = self._groups.get(group_id)
        partitions = None if topics is None else topics.get(topic)
        if topics is None or partitions is None or partitions.pop(partition, None) is None:
            return False
        if not partitions:
            del topics[topic]
            if not topics:
                del self._groups[group_id]
        return True

    def topics(self, group_id: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        return self._groups.get(group_id, _NOTHING)

    def has_offsets(self, group_id: str) -> bool:
        return group_id in self._groups

    def items_of_topic(self, topic: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """(group id, partition, offset) of every group, as they are now: the store may be changed meanwhile."""
        for group_id, topics in list(self._groups.items()):
            for partition, committed in list(topics.get(topic, {}).items()):
                yield group_id, partition, committed

    def remove_all(self, group_id: str) -> list[CoordinatorRecord]:
        """Forgets the group's offsets; returns the tombstones."""
        topics = self._groups.pop(group_id, {})
        return [
            offset_tombstone(group_id, topic, partition)
            for topic, partitions in sorted(topics.items())
            for partition in sorted(partitions)
        ]


def offset_record(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> CoordinatorRecord:
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp,
        expire_timestamp=committed.expire_timestamp,
        topic_id=committed.topic_id,
    )
    version = VALUE_VERSION if committed.expire_timestamp == NO_TIMESTAMP else VALUE_VERSION_WITH_EXPIRY
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), value, version)


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return tombstone(OffsetCommitKey(group=group_id, topic=topic, partition=partition))
