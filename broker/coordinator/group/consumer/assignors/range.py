"""The range assignor: each topic's partitions in runs, to the members in order. Neither sticky nor rack aware."""

from __future__ import annotations

from collections import Counter
from functools import cmp_to_key

from broker.coordinator.group.consumer.assignors.spec import Assignment, GroupSpec
from protocol.uuids import Uuid


def assign_range(spec: GroupSpec) -> dict[str, Assignment]:
    """Members at the same place get the same partitions of all topics with as many partitions, so that joins work.

    Static members come first, by instance id: their place, and with it their partitions, survives a restart.
    """
    subscribers: Counter[Uuid] = Counter()
    for member in spec.members.values():
        subscribers.update(member.subscribed)
    served: Counter[Uuid] = Counter()
    assignment: dict[str, Assignment] = {}
    for member_id in _sorted_members(spec):
        mine: Assignment = {}
        for topic in spec.members[member_id].subscribed:
            quota, extra = divmod(spec.partition_counts[topic], subscribers[topic])
            place = served[topic]
            served[topic] += 1
            first = place * quota + min(place, extra)
            last = first + quota + (place < extra)
            if first < last:
                mine[topic] = frozenset(range(first, last))
        assignment[member_id] = mine
    return assignment


def _sorted_members(spec: GroupSpec) -> list[str]:
    def compare(left: str, right: str) -> int:
        mine, theirs = spec.members[left].instance_id, spec.members[right].instance_id
        if mine is not None and theirs is not None:
            return (mine > theirs) - (mine < theirs)
        if mine is not None:
            return -1
        if theirs is not None:
            return 1
        return (left > right) - (left < right)

    return sorted(spec.members, key=cmp_to_key(compare))
