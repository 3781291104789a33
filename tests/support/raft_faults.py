"""What goes wrong in a simulated quorum, until it is told to stop."""

from __future__ import annotations

import itertools
from enum import Enum

from support.raft_sim import SimNode, World

from controller.raft.types import AddVoter, RemoveVoter


class Kind(Enum):
    """What a run is about."""

    MIXED = "everything, now and then"
    ELECTIONS = "leaders crash when they are elected, voters when they have voted"
    VOTERS = "the voter set changes all the time, under partitions"


class Faults:
    def __init__(self, world: World, kind: Kind = Kind.MIXED) -> None:
        self.world = world
        self.kind = kind
        self.is_over = False
        self.counts: dict[str, int] = {}
        self._payloads = itertools.count()
        self._restart_delays: tuple[int, ...] = (5, 100, 700)
        rng = world.rng
        self._kinds = {
            "crash": 3,
            "freeze": 2,
            "split": 2,
            "isolate": 2,
            "one_way": 2,
            "join": 2,
            "mend": 3,
            "break_disk": 1,
            "slow_disk": 1,
            "noise": 2,
            "add_voter": 3,
            "remove_voter": 2,
            "snapshot": 4,
            "crash_all": 0.3,
        }
        self._tempo = rng.choice((60, 150, 400))
        if kind is Kind.ELECTIONS:
            world.on_elected = world.on_vote = self._maybe_crash_soon
            world.max_batches = 1
            world.max_delay = rng.choice((5, 15, 40))
            self._restart_delays = (1, 5, 30, 150)
            self._kinds = {"crash": 2, "crash_all": 2, "isolate": 2, "one_way": 2, "split": 2, "slow_disk": 1}
            self._tempo = 100
        elif kind is Kind.VOTERS:
            self._kinds = {"add_voter": 20, "remove_voter": 5, "split": 4, "isolate": 2, "crash": 2, "snapshot": 1}
            self._tempo = rng.choice((40, 80))
        self._propose_every = rng.choice((15, 40, 120))
        world.at(rng.randrange(1, 400), self._strike)
        world.at(10, self._propose)

    def _propose(self) -> None:
        """Clients propose to whoever thinks it leads, an old leader included."""
        rng = self.world.rng
        if self.is_over:
            return
        for node in self.world.alive:
            core = node.node
            if core is not None and core.is_leader and core.leadership.is_ready and node.frozen_until <= self.world.now:
                node.propose(f"change {next(self._payloads)}")
        self.world.at(self.world.now + rng.randrange(1, 2 * self._propose_every), self._propose)

    def _strike(self) -> None:
        if self.is_over:
            return
        rng = self.world.rng
        kind = rng.choices(list(self._kinds), weights=list(self._kinds.values()))[0]
        alive = [node for node in self.world.alive if node.frozen_until <= self.world.now]
        if alive:
            # Whoever leads is worth most trouble.
            leading = [node for node in alive if node.node is not None and node.node.is_leader]
            share = 0.9 if "voter" in kind else 0.5
            victim = rng.choice(leading) if leading and rng.random() < share else rng.choice(alive)
            self.counts[kind] = self.counts.get(kind, 0) + 1
            getattr(self, f"_{kind}")(victim)
        self.world.at(self.world.now + rng.randrange(1, 2 * self._tempo), self._strike)

    def _crash(self, node: SimNode) -> None:
        node.crash()
        self.world.at(self.world.now + self.world.rng.choice(self._restart_delays), self._restart, node)

    def _maybe_crash_soon(self, node: SimNode) -> None:
        world = self.world
        if not self.is_over and world.rng.random() < 0.5:
            world.at(world.now + world.rng.choice((1, 5, 20, 60)), self._crash_if_alive, node, node.incarnation)

    def _crash_if_alive(self, node: SimNode, incarnation: int) -> None:
        if node.node is not None and node.incarnation == incarnation and not self.is_over:
            self._crash(node)

    def _crash_all(self, node: SimNode) -> None:
        for each in self.world.alive:
            self._crash(each)

    def _restart(self, node: SimNode) -> None:
        if node.node is None:
            if self.world.rng.random() < 0.1:
                node.port += 1
            node.start()

    def _freeze(self, node: SimNode) -> None:
        node.frozen_until = self.world.now + self.world.rng.choice((50, 500, 1_500))

    def _block(self, pairs: set[tuple[int, int]]) -> None:
        self.world.blocked |= pairs
        self.world.at(self.world.now + self.world.rng.choice((100, 600, 1_500)), self._unblock, pairs)

    def _unblock(self, pairs: set[tuple[int, int]]) -> None:
        self.world.blocked -= pairs

    def _split(self, node: SimNode) -> None:
        ids = list(self.world.nodes)
        self.world.rng.shuffle(ids)
        cut = self.world.rng.randrange(1, len(ids))
        self._block({pair for a in ids[:cut] for b in ids[cut:] for pair in ((a, b), (b, a))})

    def _isolate(self, node: SimNode) -> None:
        self._block({pair for other in self.world.nodes for pair in ((node.id, other), (other, node.id))})

    def _one_way(self, node: SimNode) -> None:
        others = [other for other in self.world.nodes if other != node.id]
        deaf = self.world.rng.random() < 0.5
        self._block({(other, node.id) if deaf else (node.id, other) for other in others})

    def _mend(self, node: SimNode) -> None:
        self.world.blocked.clear()
        self.world.loss = self.world.doubling = 0.0

    def _noise(self, node: SimNode) -> None:
        self.world.loss = self.world.rng.choice((0.0, 0.05, 0.3))
        self.world.doubling = self.world.rng.choice((0.0, 0.1))
        self.world.max_delay = self.world.rng.choice((3, 20, 120))

    def _break_disk(self, node: SimNode) -> None:
        node.fail_disk()
        self.world.at(self.world.now + self.world.rng.choice((20, 300)), self._give_up, node, node.incarnation)

    def _give_up(self, node: SimNode, incarnation: int) -> None:
        if node.node is not None and node.incarnation == incarnation:
            self._crash(node)

    def _slow_disk(self, node: SimNode) -> None:
        self.world.max_sync_delay = self.world.rng.choice((3, 15, 150))

    def _snapshot(self, node: SimNode) -> None:
        node.take_snapshot()
        if self.world.rng.random() < 0.7:
            node.clean_up()

    def _join(self, node: SimNode) -> None:
        """Any controller that is none asks to become a voter, some as if they were the only one to ask."""
        self._add_voter(node)

    def _add_voter(self, node: SimNode) -> None:
        core = node.node
        assert core is not None
        voters = {voter.key.id for voter in core.voters}
        spare = [each for each in self.world.nodes.values() if each.is_controller and each.id not in voters]
        if spare:
            added = self.world.rng.choice(spare)
            self.world.ask(node, AddVoter(added.voter, 300, self.world.rng.random() < 0.5))

    def _remove_voter(self, node: SimNode) -> None:
        core = node.node
        assert core is not None
        if len(core.voters) > 2:
            self.world.ask(node, RemoveVoter(self.world.rng.choice(core.voters).key, 300))

    def stop(self) -> None:
        """Everything works again: what follows is about coming back."""
        world = self.world
        self.is_over = True
        world.blocked.clear()
        world.loss = world.doubling = 0.0
        world.max_delay = world.max_sync_delay = 10
        for node in world.nodes.values():
            node.frozen_until = min(node.frozen_until, world.now)
            if node.node is not None and node.disk.is_broken:
                node.crash()
            if node.node is None:
                node.start()
