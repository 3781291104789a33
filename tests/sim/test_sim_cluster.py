"""Thousands of seeded histories of a cluster: no acknowledged record is missing on a leader that was elected cleanly.

The controllers' own state machines decide on registrations, fencing, elections, ISRs and reassignments, while brokers
crash and lose the ends of their logs, lag behind the metadata, stop properly or silently, and controllers change.
"""

from __future__ import annotations

from collections import Counter

import pytest
from support.cluster_sim import ClusterSim
from support.metadata import content, image_of

from controller import partition_change
from controller.snapshot_records import image_records

SEEDS = 300
STEPS = 600
EVERYONE = tuple(range(1, 10))


def run(seed: int, steps: int = STEPS) -> ClusterSim:
    sim = ClusterSim(seed)
    for step in range(steps):
        try:
            sim.step()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, step {step}: {error}") from error
    return sim


def test_no_acknowledged_record_is_lost() -> None:
    total: Counter[str] = Counter()
    for seed in range(SEEDS):
        sim = run(seed)
        total += sim.counts
        assert content(image_of(image_records(sim.image))) == content(sim.image), seed  # a snapshot says it all
    print(f"{SEEDS} histories of {STEPS} steps: {dict(sorted(total.items()))}")
    for what in (
        *("acknowledged", "elections", "leaders checked", "fenced", "crashes", "clean stops", "fail-overs"),
        *("refused registrations", "ISR changes", "ISR changes refused", "reassignments over", "unclean elections"),
        *("reassignments cancelled", "found dead"),
    ):
        assert total[what] >= 100, (what, total)


def broken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One rule of the controllers left out."""
    if name == "crashed brokers stay eligible":
        eligible = partition_change._eligible
        monkeypatch.setattr(
            partition_change,
            "_eligible",
            lambda partition, replicas, isr, rules, lost: eligible(partition, replicas, isr, rules, ()),
        )
    elif name == "former replicas stay eligible":
        kept = partition_change._eligible
        monkeypatch.setattr(
            partition_change,
            "_eligible",
            lambda partition, replicas, isr, rules, lost: kept(
                partition._replace(replicas=EVERYONE), EVERYONE, isr, rules, lost
            ),
        )
    elif name == "anyone may lead":
        elect = partition_change._elect
        monkeypatch.setattr(
            partition_change,
            "_elect",
            lambda partition, replicas, isr, elr, rules, how: elect(partition, replicas, replicas, elr, rules, how),
        )
    elif name == "restarted followers join the ISR":
        monkeypatch.setattr("controller.alter_partition._why_ineligible", lambda image, member: None)
    elif name == "old leaders may change the ISR":
        monkeypatch.setattr("controller.alter_partition._check_epochs", lambda partition, part, broker: (None, ""))
    elif name == "reassignments end too early":
        plan = partition_change.Reassignment
        monkeypatch.setattr(
            partition_change,
            "_maybe_complete",
            lambda isr, current: (
                tuple(r for r in current.replicas if r not in current.removing),
                plan(tuple(r for r in current.replicas if r not in current.removing), (), ()),
            ),
        )


@pytest.mark.parametrize(
    "rule",
    [
        "crashed brokers stay eligible",
        "former replicas stay eligible",
        "anyone may lead",
        "restarted followers join the ISR",
        "old leaders may change the ISR",
        "reassignments end too early",
    ],
)
def test_the_simulation_finds_a_rule_left_out(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(rule, monkeypatch)
    # Old leaders rarely get that far, because a broker that was away is fenced, too: begin near a seed that shows it.
    start = 1200 if rule == "old leaders may change the ISR" else 0
    with pytest.raises(AssertionError, match="seed"):
        for seed in range(start, start + 2000):
            run(seed)
