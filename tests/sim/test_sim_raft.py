"""The metadata quorum under failures: 3 and 5 voters, spare controllers, brokers that observe.

After every event: one leader for an epoch; epochs and high watermarks do not fall; what is committed neither changes
nor vanishes, and a leader has all of it; logs agree up to the high watermark; what was acknowledged is committed. At
the end everything is mended: a leader must emerge and commit, and all logs become equal.

A failing seed can be run alone: ``BARNABAS_SIM_SEED=<seed> pytest tests/sim/test_sim_raft.py``. ``make soak`` runs
100,000 of them in as many processes as there are cores.
"""

from __future__ import annotations

import os
import time

import pytest
from support.raft_checks import Violation
from support.raft_disk import SimDisk
from support.raft_mutants import MUTANTS, Mutant
from support.raft_runs import Run
from support.raft_sim import SETTINGS, World

from controller.raft.types import ReplicaKey
from protocol.uuids import Uuid

SEEDS = int(os.environ.get("BARNABAS_RAFT_SEEDS", "1000"))
TESTS = 20
MUTANT_SEEDS = 300
"""A mutant that survives this many seeds is not found; most fall within ten, the subtle ones within a hundred."""


def run(seed: int) -> Run:
    one = Run(seed)
    try:
        one.run()
    except Exception as error:
        raise AssertionError(f"seed {seed} fails; alone: BARNABAS_SIM_SEED={seed} pytest {__file__}") from error
    return one


@pytest.mark.parametrize("batch", range(TESTS))
def test_the_quorum_survives_failures(batch: int, capsys: pytest.CaptureFixture[str]) -> None:
    alone = os.environ.get("BARNABAS_SIM_SEED")
    seeds = [int(alone)] if alone else range(batch * SEEDS // TESTS, (batch + 1) * SEEDS // TESTS)
    started = time.monotonic()
    events = sum(run(seed).world.events for seed in seeds)
    with capsys.disabled():
        print(f"\n{len(seeds)} seeds, {events} events, {time.monotonic() - started:.1f} s", end=" ")


def test_a_seed_always_gives_the_same_run() -> None:
    first, second = run(3).world, run(3).world
    assert first.events == second.events
    assert first.checks.committed == second.checks.committed


def test_the_simulation_meets_what_it_is_about() -> None:
    """Guards against a simulation in which nothing happens any more."""
    runs = [run(seed) for seed in range(40)]
    kinds = {kind for one in runs for kind in one.faults.counts}
    assert len(kinds) == 14
    assert sum(len(one.world.checks.leaders) for one in runs) > 60
    assert sum(len(one.world.checks.acknowledged) for one in runs) > 800
    assert sum(len(one.world.checks.snapshots) for one in runs) > 30
    voter_sets = {
        record.voters
        for one in runs
        for batch in one.world.checks.committed
        for record in batch.control
        if hasattr(record, "voters") and hasattr(record.voters[0], "endpoints")
    }
    assert len(voter_sets) > 20


def test_a_controller_with_a_replaced_disk_joins_again() -> None:
    """An empty disk is another replica: it must not vote in the name of the old one. With auto-join it removes its
    former self from the voters and takes its place."""
    world = World(1, settings=SETTINGS._replace(auto_join=True))
    for node in world.nodes.values():
        node.start()
    assert world.run_until(5_000, until=world.has_converged)
    replaced = next(node for node in world.nodes.values() if node is not world.leader())
    former = replaced.key
    replaced.crash()
    replaced.disk, replaced.key = SimDisk(), ReplicaKey(replaced.id, Uuid(bytes(15) + b"x"))

    def is_voter_again() -> bool:
        leader = world.leader()
        assert leader is not None and leader.node is not None
        return replaced.key in [voter.key for voter in leader.node.voters] and world.has_converged()

    replaced.start()
    assert world.run_until(world.now + 10_000, until=is_voter_again)
    leader = world.leader()
    assert leader is not None and leader.node is not None
    assert former not in [voter.key for voter in leader.node.voters]
    assert len(leader.node.voters) == 3


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_broken_core_is_found(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    break_world = mutant(monkeypatch)
    for seed in range(MUTANT_SEEDS):
        try:
            Run(seed, MUTANTS[mutant], break_world).run()
        except Violation as violation:
            with capsys.disabled():
                print(f"\n{mutant.__name__} found at seed {seed}: {str(violation)[:100]}", end=" ")
            return
    pytest.fail(f"{mutant.__name__} survived {MUTANT_SEEDS} seeds")
