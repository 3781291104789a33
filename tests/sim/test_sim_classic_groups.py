"""Classic groups under failures: members that join, leave, crash, pause and commit late; a coordinator that moves.

One seed is one run: a fake clock, one heap of events, all randomness from the seed. Invariants are checked after every
event. A failing seed can be run alone: ``BARNABAS_SIM_SEED=<seed> pytest tests/sim/test_sim_classic_groups.py``.
"""

from __future__ import annotations

import itertools
import os

import pytest
from support.classic_groups import START_MS
from support.classic_sim import Member, World

from broker.coordinator.group.classic.group import ClassicState

SEEDS_PER_TEST = 50
TESTS = 20
FAULTS_MS = 60_000
CALM_MS = 60_000
"""Longer than any session, rebalance and backoff of a simulated member together: whatever happened is over by then."""


class Faults:
    """What goes wrong, until it is told to stop. Static members always come back, under the same instance id."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._names = itertools.count()
        for _ in range(world.rng.randrange(1, 4)):
            self.start_member()
        self._plan()

    def start_member(self, instance_id: str | None = None) -> None:
        rng = self.world.rng
        if instance_id is None and rng.random() < 0.4:
            used = {member.instance_id for member in self.world.members if member.is_alive}
            instance_id = next((name for name in ("static-0", "static-1") if name not in used), None)
        self.world.members.append(Member(self.world, f"member-{next(self._names)}", instance_id))

    def _plan(self) -> None:
        self.world.at(self.world.rng.randrange(200, 5_000), self._strike)

    def _strike(self) -> None:
        if self.world.is_calm:
            return
        rng = self.world.rng
        alive = [member for member in self.world.members if member.is_alive]
        kind = rng.choice(("start", "leave", "crash", "pause", "pause", "move"))
        if kind == "move":
            self.world.move()
        elif kind == "start" or not alive:
            if len(alive) < 5:
                self.start_member()
        else:
            self._hit(kind, rng.choice(alive))
        self._plan()

    def _hit(self, kind: str, member: Member) -> None:
        rng = self.world.rng
        if kind == "pause":
            member.resumes_ms = self.world.now_ms + rng.choice((500, 3_000, 9_000, 20_000))
        elif kind == "crash" or not member.member_id:
            member.crash()
        else:
            member.leave()
        if not member.is_alive and member.instance_id is not None:
            instance_id = member.instance_id
            self.world.at(rng.randrange(100, 15_000), lambda: self._restart(instance_id))

    def _restart(self, instance_id: str) -> None:
        if all(member.instance_id != instance_id for member in self.world.members if member.is_alive):
            self.start_member(instance_id)


def run(seed: int) -> World:
    world = World(seed)
    Faults(world)
    world.run_until(START_MS + FAULTS_MS)
    world.is_calm = True
    world.failure_rate = 0.0
    for member in world.members:
        member.resumes_ms = min(member.resumes_ms, world.now_ms)
    world.run_until(world.now_ms + CALM_MS)
    check_calm(world)
    return world


def check_calm(world: World) -> None:
    """Without faults every member that lives gets a place, and nobody waits any more."""
    alive = [member for member in world.members if member.is_alive]
    group = world.group()
    assert group is not None
    assert group.state is (ClassicState.STABLE if alive else ClassicState.EMPTY), group.state
    assert {member.member_id for member in alive} == set(group.members)
    assert all(member.is_stable and member.generation_id == group.generation_id for member in alive)
    assert not any(call.name.endswith(("join", "sync")) for call in world.waiting)


@pytest.mark.parametrize("batch", range(TESTS))
def test_classic_groups_survive_failures(batch: int) -> None:
    alone = os.environ.get("BARNABAS_SIM_SEED")
    seeds = [int(alone)] if alone else range(batch * SEEDS_PER_TEST, (batch + 1) * SEEDS_PER_TEST)
    for seed in seeds:
        try:
            run(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed} fails; alone: BARNABAS_SIM_SEED={seed} pytest {__file__}") from error


def test_a_seed_always_gives_the_same_run() -> None:
    assert run(3).log == run(3).log


def test_the_simulation_meets_what_it_is_about() -> None:
    """Guards against a simulation in which nothing happens any more."""
    worlds = [run(seed) for seed in range(20)]
    assert sum(world.stored_generation for world in worlds) > 100
    assert sum(len(world.committed) for world in worlds) > 80
    assert any(member.instance_id for world in worlds for member in world.members)
