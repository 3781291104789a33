"""The uniform assignor where members want different topics: fill the least loaded, then even out topic by topic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from broker.coordinator.group.consumer.assignors.spec import (
    Assignment,
    GroupSpec,
    members_in_order,
    uuid_sort_key,
)
from protocol.uuids import Uuid

_MAX_ROUNDS: Final = 16
"""Kafka's bound. Each round can only improve the balance; more than a few are never seen."""
_NOBODY: Final = -1


def assign_heterogeneous(spec: GroupSpec) -> dict[str, Assignment]:
    return _Builder(spec).build()


class _Builder:
    """Members are their index in ``member_ids``; ``owners[topic][partition]`` is the one that has it."""

    __slots__ = ("member_ids", "owners", "sizes", "spec", "subscribers")

    def __init__(self, spec: GroupSpec) -> None:
        self.spec = spec
        self.member_ids = members_in_order(spec)
        self.sizes = [0] * len(self.member_ids)
        self.subscribers: dict[Uuid, list[int]] = {}
        for index, member_id in enumerate(self.member_ids):
            for topic in spec.members[member_id].subscribed:
                self.subscribers.setdefault(topic, []).append(index)
        self.owners: dict[Uuid, list[int]] = {
            topic: [_NOBODY] * spec.partition_counts[topic] for topic in self.subscribers
        }

    def build(self) -> dict[str, Assignment]:
        if not self.subscribers:
            return {}
        self._keep_what_is_still_subscribed()
        self._assign_the_rest()
        self._balance()
        result: dict[str, dict[Uuid, set[int]]] = {member_id: {} for member_id in self.member_ids}
        for topic, owners in self.owners.items():
            for partition, owner in enumerate(owners):
                if owner != _NOBODY:
                    result[self.member_ids[owner]].setdefault(topic, set()).add(partition)
        return {
            member_id: {topic: frozenset(partitions) for topic, partitions in mine.items()}
            for member_id, mine in result.items()
        }

    def _keep_what_is_still_subscribed(self) -> None:
        for index, member_id in enumerate(self.member_ids):
            member = self.spec.members[member_id]
            for topic, partitions in member.assigned.items():
                if topic in member.subscribed:
                    self.sizes[index] += len(partitions)
                    for partition in partitions:
                        self.owners[topic][partition] = index

    def _assign_the_rest(self) -> None:
        for topic in self._sorted(self.subscribers):
            unassigned = [partition for partition, owner in enumerate(self.owners[topic]) if owner == _NOBODY]
            if unassigned:
                balancer = _Balancer(self.subscribers[topic], self.sizes)
                for partition in unassigned:
                    self._move(topic, partition, balancer.next_least_loaded())

    def _balance(self) -> None:
        """Until a whole round over the topics changed nothing."""
        topics = self._sorted(topic for topic, members in self.subscribers.items() if len(members) > 1)
        last_changed = -1
        for _ in range(_MAX_ROUNDS):
            for place, topic in enumerate(topics):
                if place == last_changed:
                    return
                if self._balance_topic(topic) or last_changed == -1:
                    last_changed = place

    def _balance_topic(self, topic: Uuid) -> int:
        """Moves partitions of the topic from the most to the least loaded of its subscribers; how many it moved."""
        moved = 0
        balancer = _Balancer(self.subscribers[topic], self.sizes)
        if balancer.imbalance <= 1:
            return moved
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(self.owners[topic]):
            owned.setdefault(owner, []).append(partition)
        while not balancer.is_balanced():
            most_loaded = balancer.next_most_loaded()
            while most_loaded != _NOBODY and not owned.get(most_loaded):
                balancer.exclude_most_loaded()
                most_loaded = balancer.next_most_loaded()
            if most_loaded == _NOBODY:
                break
            partition = owned[most_loaded].pop()
            least_loaded = balancer.next_least_loaded()
            if balancer.is_balanced():
                break
            self._move(topic, partition, least_loaded)
            moved += 1
        return moved

    def _move(self, topic: Uuid, partition: int, member: int) -> None:
        owner = self.owners[topic][partition]
        if owner != _NOBODY:
            self.sizes[owner] -= 1
        self.owners[topic][partition] = member
        self.sizes[member] += 1

    def _sorted(self, topics: Iterable[Uuid]) -> list[Uuid]:
        """The topics with most partitions per subscriber first: they leave the least choice."""

        def key(topic: Uuid) -> tuple[float, int, tuple[int, int]]:
            subscribers = len(self.subscribers[topic])
            return -self.spec.partition_counts[topic] / subscribers, subscribers, uuid_sort_key(topic)

        return sorted(topics, key=key)


class _Balancer:
    """Two fingers on the members sorted by load: one rises from the least loaded, one falls from the most loaded.

    The least loaded range is always [0, least_end); each time it is through, its members have one partition more and
    it takes in those that have as many. The most loaded range mirrors that from the other end, without the members
    that have nothing left to give, which are moved behind it.
    """

    __slots__ = (
        "_least_count",
        "_least_end",
        "_members",
        "_most_count",
        "_most_end",
        "_most_start",
        "_next_least",
        "_next_most",
        "_sizes",
        "imbalance",
    )

    def __init__(self, subscribers: Sequence[int], sizes: list[int]) -> None:
        self._sizes = sizes
        self._members = sorted(subscribers, key=lambda member: (sizes[member], member))
        least, most = sizes[self._members[0]], sizes[self._members[-1]]
        self.imbalance = most - least
        self._least_end = 0
        self._least_count = least - 1
        self._next_least = 0
        self._most_start = self._most_end = len(self._members)
        self._most_count = most + 1
        self._next_most = len(self._members) - 1

    def is_balanced(self) -> bool:
        return self._most_count - self._least_count <= 1

    def next_least_loaded(self) -> int:
        if self._next_least >= self._least_end:
            self._least_count += 1
            while (
                self._least_end < len(self._members)
                and self._sizes[self._members[self._least_end]] == self._least_count
            ):
                self._least_end += 1
            self._next_least = 0
        member = self._members[self._next_least]
        self._next_least += 1
        return member

    def next_most_loaded(self) -> int:
        if self._next_most < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                self._most_count = self._sizes[self._members[self._most_start - 1]]
            else:
                self._most_count -= 1
            while self._most_start > 0 and self._sizes[self._members[self._most_start - 1]] == self._most_count:
                self._most_start -= 1
            self._next_most = self._most_end - 1
        if self._next_most < 0:
            return _NOBODY
        member = self._members[self._next_most]
        self._next_most -= 1
        return member

    def exclude_most_loaded(self) -> None:
        """The member just returned has nothing to give: it goes behind the range."""
        given, last = self._next_most + 1, self._most_end - 1
        self._members[given], self._members[last] = self._members[last], self._members[given]
        self._most_end -= 1
