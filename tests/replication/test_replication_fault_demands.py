"""A run of faults in which too little happened is complained of, whatever else the history says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.fault_demands import (
    COUNTED_PER_S,
    FAMILIES,
    IN_LONG_RUNS,
    JAVA,
    LONG_S,
    OF_NETWORKS,
    OF_NETWORKS_IN_LONG_RUNS,
    complaints,
)
from support.fault_run import judge
from support.history import History
from support.history_verdict import Verdict
from support.planted_history import good


def enough(*, is_long: bool = False, isolates: bool = True, has_java: bool = True) -> Verdict:
    """Of a run that counts."""
    verdict = Verdict()
    families = [*FAMILIES, *(IN_LONG_RUNS if is_long else ())]
    if isolates:
        families += [*(OF_NETWORKS_IN_LONG_RUNS if is_long else ()), OF_NETWORKS[0], OF_NETWORKS[1][0]]
    for family in families:
        verdict.faults[str(family)] += 1
        verdict.bites[str(family)] += 1
    verdict.acknowledged_in.update(dict.fromkeys(range(6), 100000))
    verdict.acknowledged_by.update(dict.fromkeys(("p0", "shared", *((JAVA,) if has_java else ())), 10_000))
    verdict.counts.update(dict.fromkeys(COUNTED_PER_S, 10_000))
    for counts in (verdict.commits, verdict.assignments):
        counts.update(classic=10_000, consumer=10_000)
    verdict.struck_unsettled = 1
    return verdict


@pytest.mark.parametrize("isolates", [True, False])
@pytest.mark.parametrize("has_java", [True, False])
def test_enough_is_enough(isolates: bool, has_java: bool) -> None:
    short, long = (enough(is_long=is_long, isolates=isolates, has_java=has_java) for is_long in (False, True))
    assert list(complaints(short, 60, isolates=isolates, has_java=has_java)) == []
    assert list(complaints(long, LONG_S, isolates=isolates, has_java=has_java)) == []
    more = complaints(short, LONG_S, isolates=isolates, has_java=has_java)
    assert list(more), "more is wanted of a long run"


def no_follower(verdict: Verdict) -> None:
    del verdict.faults["kill -9 of a follower"]


def no_isolation(verdict: Verdict) -> None:
    del verdict.faults["isolated: sends nothing"]


def a_disk_nobody_used(verdict: Verdict) -> None:
    verdict.bites["full disk"] = 0


def a_slow_partition(verdict: Verdict) -> None:
    verdict.acknowledged_in[4] = 500


def a_slow_producer(verdict: Verdict) -> None:
    verdict.acknowledged_by["shared"] = 50


def no_java(verdict: Verdict) -> None:
    del verdict.acknowledged_by[JAVA]


def no_window_sent_again(verdict: Verdict) -> None:
    verdict.counts["windows sent again"] = 0


def no_follower_read(verdict: Verdict) -> None:
    verdict.counts["read from followers"] = 0


def no_end_asked_for(verdict: Verdict) -> None:
    verdict.counts["latest offsets"] = 0


def a_slow_group(verdict: Verdict) -> None:
    verdict.commits["classic"] = 50


def a_group_that_never_moves(verdict: Verdict) -> None:
    verdict.assignments["consumer"] = 1


def faults_on_top_of_each_other(verdict: Verdict) -> None:
    verdict.struck_unsettled = verdict.faults.total() // 2


@pytest.mark.parametrize(
    "change",
    [
        no_follower,
        no_isolation,
        a_disk_nobody_used,
        a_slow_partition,
        a_slow_producer,
        no_java,
        no_window_sent_again,
        no_follower_read,
        no_end_asked_for,
        a_slow_group,
        a_group_that_never_moves,
        faults_on_top_of_each_other,
    ],
    ids=lambda change: change.__name__,
)
def test_too_little_is_complained_of(change: Callable[[Verdict], None]) -> None:
    verdict = enough()
    change(verdict)
    assert len(list(complaints(verdict, 60, isolates=True, has_java=True))) == 1


def test_the_program_knows_what_the_run_was_to_do(tmp_path: Path) -> None:
    """A good history in which hardly anything happened: its plan is in it."""
    history = History(tmp_path / "history.jsonl")
    for at, event in enumerate(good()):
        history.add(**{key: value for key, value in event.items() if key != "ms"})
        if at == 0:
            history.add("plan", seconds=60, isolates=False, java=False)
    history.close()
    outcome = judge(history.path)
    assert not outcome.is_good
    assert "PROBLEM: too little: no fault of the kind: kill -9 of a leader" in outcome.text
    assert str(history.path) in outcome.text
