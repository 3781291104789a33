"""Seeded histories of replicated partitions: what was acknowledged stays, what was read never changes, and after the
faults it goes on. The simulation is worth something only if it finds replication that is broken on purpose: `MUTANTS`.
"""

from __future__ import annotations

import gc
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.replication_mutants import MUTANTS, RARE
from support.replication_sim import ReplicationSim

from broker.replication.leader import Follower

SEEDS = int(os.environ.get("BARNABAS_REPLICATION_SEEDS", "2000"))
FIRST_SEED = int(os.environ.get("BARNABAS_REPLICATION_FIRST_SEED", "0"))
"""Of the histories that must hold; mutants are looked for from 0 on."""
MOST_SEEDS = 2_000
"""Until a mutant is found; most are in the first ten."""


SEEN = (
    "acknowledged",
    "all at once",
    "controllers failed over",
    "crashes",
    "disks failed",
    "disks full",
    "disks replaced",
    "diverging",
    "duplicates",
    "elections",
    "fenced",
    "isolations: both ways",
    "isolations: hears nothing",
    "isolations: sends nothing",
    "latest refused: OFFSET_NOT_AVAILABLE",
    "losses of power",
    "pauses",
    "producers repeat",
    "proper stops",
    "read from followers",
    "records deleted",
    "reassignments",
    "records lost on a disk",
    "shown",
    "slow",
    "storms: crash",
    "storms: isolate",
    "storms: pause",
    "storms: restart",
    "truncations",
)
"""Happens at least once in every ten histories, on average."""
SEEN_SOMETIMES = (
    "follower's disk full",
    "outside the leader's log",
    "produce refused: disk",
    "records lost on a failed disk",
)
"""In every thirty."""


@pytest.fixture(autouse=True, scope="module")
def quick() -> Iterator[None]:
    """A tenth of the time would go into collections that look at all the modules that tests have imported, and some
    into warnings that brokers are fenced."""
    gc.collect()
    gc.freeze()
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)
    gc.unfreeze()


def run(seed: int, directory: Path, *, unclean: bool = False) -> ReplicationSim:
    sim = ReplicationSim(seed, directory, unclean=unclean)
    try:
        sim.run()
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, at {sim.now} ms: {error}") from error
    return sim


def test_no_acknowledged_record_is_lost(tmp_path: Path) -> None:
    total: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
        total += run(seed, tmp_path).counts
    print(f"{SEEDS} histories from seed {FIRST_SEED} on: {dict(sorted(total.items()))}")
    for what in SEEN:
        assert total[what] >= SEEDS // 10, (what, total)
    for what in SEEN_SOMETIMES:
        assert total[what] >= SEEDS // 30, (what, total)
    assert total["left to a person"] <= total["disks replaced"] // 10, total


def test_after_unclean_elections_all_replicas_are_equal_again(tmp_path: Path) -> None:
    """Records may be lost then, that is what the setting says; but nobody keeps what the leader has not."""
    total: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + SEEDS // 10):
        total += run(seed, tmp_path, unclean=True).counts
    assert total["losses of power"] >= SEEDS // 20, total


@pytest.mark.parametrize("break_it", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_mutants_are_found(break_it: Callable[[pytest.MonkeyPatch], None], tmp_path: Path) -> None:
    """The simulation is worth something only if it finds replication that is broken on purpose."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        break_it(monkeypatch)
        first = RARE.get(break_it, 0)
        for seed in range(first, first + MOST_SEEDS):
            try:
                run(seed, tmp_path)
            except (AssertionError, IndexError) as error:
                print(f"{break_it.__name__}: {error}")
                return
    pytest.fail(f"{break_it.__name__} was not found")


def test_followers_are_compared_by_value() -> None:
    assert Follower(1) == Follower(1)
