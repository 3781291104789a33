"""The uniform assignor where all members want the same topics: equal shares, moving as little as possible."""

from __future__ import annotations

from broker.coordinator.group.consumer.assignors.spec import (
    Assignment,
    GroupSpec,
    members_in_order,
    partitions_in_order,
    topics_in_order,
)
from protocol.uuids import Uuid


def assign_homogeneous(spec: GroupSpec) -> dict[str, Assignment]:
    """Shares differ by at most one. A member gives up only what is above its share or no longer subscribed."""
    member_ids = members_in_order(spec)
    topics = spec.members[member_ids[0]].subscribed
    if not topics:
        return {}
    owned = {
        (topic, partition)
        for member in spec.members.values()
        for topic, partitions in member.assigned.items()
        for partition in partitions
    }
    unassigned: list[tuple[Uuid, int]] = []
    total = 0
    for topic in topics_in_order(topics):
        count = spec.partition_counts[topic]
        unassigned.extend((topic, partition) for partition in range(count) if (topic, partition) not in owned)
        total += count

    minimum, extras = divmod(total, len(member_ids))
    kept: dict[str, dict[Uuid, set[int]]] = {}
    unfilled: list[tuple[str, int]] = []
    for place, member_id in enumerate(member_ids):
        takes_extra = extras > 0
        quota = minimum + takes_extra
        mine: dict[Uuid, set[int]] = {}
        assigned = spec.members[member_id].assigned
        for topic in topics_in_order(assigned.keys()):
            if topic not in topics:
                continue
            if len(assigned[topic]) <= quota:
                quota -= len(assigned[topic])
                mine[topic] = set(assigned[topic])
                continue
            in_order = partitions_in_order(assigned[topic])
            if quota:
                mine[topic] = set(in_order[:quota])
            unassigned.extend((topic, partition) for partition in in_order[quota:])
            quota = 0
        # A member below its share leaves the extra partition to those behind it, if there are enough of them.
        if quota > 0 and takes_extra and len(member_ids) - place > extras:
            quota -= 1
            takes_extra = False
        if quota > 0:
            unfilled.append((member_id, quota))
        extras -= takes_extra
        kept[member_id] = mine

    rest = iter(unassigned)
    for member_id, quota in unfilled:
        for _, (topic, partition) in zip(range(quota), rest, strict=False):
            kept[member_id].setdefault(topic, set()).add(partition)
    return {
        member_id: {topic: frozenset(partitions) for topic, partitions in mine.items()}
        for member_id, mine in kept.items()
    }
