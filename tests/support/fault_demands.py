"""What a run of faults must have done to count: a verdict on a history in which little happened says little."""

from __future__ import annotations

from collections.abc import Iterator

from support.history_verdict import Verdict

FAMILIES = (
    "kill -9 of a leader",
    "kill -9 of a follower",
    "kill -9 of a controller",
    "kill -9 of a random set",
    "SIGSTOP",
    "slowed",
    "restart storm",
    "full disk",
    "failing disk",
)
OF_NETWORKS = ("isolated: both ways", ("isolated: sends nothing", "isolated: hears nothing"))
IN_LONG_RUNS = (
    "kill -9 of all",
    "SIGTERM",
    "SIGSTOP of a leader",
    "SIGSTOP of a follower",
    "SIGSTOP of a controller",
    "SIGSTOP of a random set",
    "failing disk: syncs of data",
    "failing disk: writes of data",
    "failing disk: syncs of metadata",
    "slow disk",
)
OF_NETWORKS_IN_LONG_RUNS = (
    "isolated: sends nothing",
    "isolated: hears nothing",
    "isolated: from the other nodes",
    "slow network",
)
LONG_S = 400
"""In so many seconds every kind of fault has its turn, however slow the machine."""
OF_DISKS = ("failing disk", "full disk", "slow disk")
JAVA = "java"
"""Kafka's own producer."""

# Of each partition and each group. On two cores that others used as well, the least seen was 51 records, 10 commits and
# 0.4 assignments a second.
ACKNOWLEDGED_PER_S = 10.0
COMMITS_PER_S = 1.0
ASSIGNMENTS_PER_S = 0.1
# Of clients that do what no other does; the least seen was 0.7 windows, 790 records and 66 offsets a second.
COUNTED_PER_S = {"windows sent again": 0.05, "read from followers": 3.0, "latest offsets": 3.0}
ACKNOWLEDGED_BY_ONE_PER_S = 2.0
"""To each producer, so that none stands still behind what others write to its partitions. The least seen was 36."""

MOST_UNSETTLED = 0.25
"""A share of all faults. Mostly it is none; with seven others at each core, and 12 s instead of 20 to settle, it was 2
of 14."""


def complaints(verdict: Verdict, seconds: float, *, isolates: bool, has_java: bool) -> Iterator[str]:
    """What a run of so many seconds owes; `isolates` if it could break networks, `has_java` with Kafka's producer."""
    families = [*FAMILIES, *(OF_NETWORKS if isolates else ())]
    if seconds >= LONG_S:
        families += [*IN_LONG_RUNS, *(OF_NETWORKS_IN_LONG_RUNS if isolates else ())]
    for family in families:
        if not any(kind.startswith(family) for kind in verdict.faults):
            yield f"no fault of the kind: {family}"
    for kind in verdict.faults:
        if kind.startswith(OF_DISKS) and not verdict.bites[kind]:
            yield f"{kind}: {verdict.faults[kind]} times, and nobody used the disk meanwhile"
    producers = {**({JAVA: 0} if has_java else {}), **verdict.acknowledged_by}
    floors = (
        ("acknowledged in partition", verdict.acknowledged_in, ACKNOWLEDGED_PER_S),
        ("acknowledged to producer", producers, ACKNOWLEDGED_BY_ONE_PER_S),
        ("commits of group", verdict.commits, COMMITS_PER_S),
        ("assignments of group", verdict.assignments, ASSIGNMENTS_PER_S),
    )
    for what, counts, per_s in floors:
        for name, count in sorted(counts.items()):
            if count < per_s * seconds:
                yield f"only {count} {what} {name} in {seconds:.0f} s"
    for what, per_s in COUNTED_PER_S.items():
        if verdict.counts[what] < per_s * seconds:
            yield f"only {verdict.counts[what]} {what} in {seconds:.0f} s"
    if verdict.struck_unsettled > MOST_UNSETTLED * verdict.faults.total():
        yield (
            f"{verdict.struck_unsettled} of {verdict.faults.total()} faults struck before the last one was overcome: "
            "what they interrupted is in no measurement of unavailability"
        )
