"""One seed is one run: a quorum of some shape, a while of faults, then calm, in which it must come back."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from support.raft_faults import Faults, Kind
from support.raft_sim import SETTINGS, World

HASTY = SETTINGS._replace(
    election_timeout_ms=50,
    fetch_timeout_ms=100,
    request_timeout_ms=100,
    retry_backoff_ms=10,
    fetch_max_wait_ms=50,
)
"""So short that messages overtake the time-outs, and candidates meet."""
FAULTS_MS = 3_000
CALM_MS = 40 * SETTINGS.election_timeout_ms
"""Enough for a dozen elections in a row; a quorum without faults needs one or two."""


class Run:
    def __init__(self, seed: int, kind: Kind | None = None, break_world: Callable[[World], None] | None = None) -> None:
        """``kind`` is drawn from the seed if it is not given."""
        shape = Random(-seed - 1)
        kind = kind or shape.choice((Kind.MIXED, Kind.MIXED, Kind.ELECTIONS, Kind.VOTERS))
        is_about_voters = kind is Kind.VOTERS
        self.world = World(
            seed,
            voters=3 if is_about_voters else shape.choice((3, 5)),
            spare_controllers=shape.choice((2, 3) if is_about_voters else (0, 0, 1)),
            brokers=shape.choice((0, 0, 1)),
            is_static=not is_about_voters and shape.random() < 0.2,
            settings=(HASTY if kind is Kind.ELECTIONS else SETTINGS)._replace(auto_join=shape.random() < 0.2),
        )
        if break_world is not None:
            break_world(self.world)
        for node in self.world.nodes.values():
            node.rate = shape.choice((1.0, 0.8, 1.2))
        self.faults = Faults(self.world, kind)

    def run(self) -> World:
        world = self.world
        for node in world.nodes.values():
            node.start()
        world.run_until(FAULTS_MS)
        self.faults.stop()
        self._come_back()
        self._commit()
        world.checks.at_the_end()
        return world

    def _commit(self) -> None:
        """An election that was due may still come in between, so a client that hears nothing asks again."""
        for attempt in range(5):
            leader = self.world.leader()
            if leader is not None:
                leader.propose(f"afterwards {attempt}")
            self._come_back()
            if f"afterwards {attempt}" in self.world.checks.acknowledged:
                return
        raise AssertionError("a calm quorum does not commit")

    def _come_back(self) -> None:
        world = self.world
        if not world.run_until(world.now + CALM_MS, until=world.has_converged):
            states = [
                (node.id, node.node.role_name, node.node.epoch, node.node.high_watermark, node.node.log_end_offset)
                for node in world.alive
                if node.node is not None
            ]
            raise AssertionError(f"after {CALM_MS} ms without faults the quorum has not come back: {states}")
