"""Server-side assignors: who should own which partition. Pure functions of the members and their topics.

Both give what Apache Kafka's give for the same group. Neither looks at racks: version 4.3.1 of Kafka has no rack
awareness on the server's side either (only the hash of a topic's metadata contains the racks).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker.coordinator.group.consumer.assignors.range import assign_range
from broker.coordinator.group.consumer.assignors.spec import Assignment, GroupSpec, MemberSpec
from broker.coordinator.group.consumer.assignors.uniform_heterogeneous import assign_heterogeneous
from broker.coordinator.group.consumer.assignors.uniform_homogeneous import assign_homogeneous

__all__ = ["ASSIGNORS", "Assignment", "GroupSpec", "MemberSpec", "assign_range", "assign_uniform"]


def assign_uniform(spec: GroupSpec) -> dict[str, Assignment]:
    """Even over all topics together, and sticky: what a member has it keeps as long as balance allows."""
    if not spec.members:
        return {}
    return assign_homogeneous(spec) if spec.is_homogeneous else assign_heterogeneous(spec)


ASSIGNORS: Mapping[str, Callable[[GroupSpec], dict[str, Assignment]]] = {
    "uniform": assign_uniform,
    "range": assign_range,
}
