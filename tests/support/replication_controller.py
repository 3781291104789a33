"""The active controller of the replication simulation: the product's decisions, and a log that takes its time.

A decision counts for the next one as soon as it is appended, and for everybody else when it is committed. Another
controller takes over with what was committed, and with some of what was on its way; whoever waited for an answer waits
in vain. What the old one knew of sessions is gone, and meanwhile nobody is answered at all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from controller.delta import apply_records
from controller.elections import balance_leaders, elect_unclean_leaders
from controller.heartbeats import BrokerHeartbeats, fence_dead, fence_expired
from controller.image import MetadataImage
from controller.outcome import Outcome
from protocol.errors import ApiError

if TYPE_CHECKING:
    from support.replication_sim import ReplicationSim

SESSION_MS = 600
TICK_MS = 75
CONTROLLER = 0
"""Its place among the ends of a link."""

Decide = Callable[[MetadataImage], Outcome[Any]]


class Controller:
    """One after another; `life` tells them apart."""

    id = CONTROLLER
    alive = True
    paused = False
    slow_ms = 0

    def __init__(self, sim: ReplicationSim, image: MetadataImage) -> None:
        self.sim = sim
        self.life = 0
        self.epoch = image.epoch
        self.appended = self.committed = image
        self._uncommitted: deque[tuple[MetadataImage, list[Callable[[], None]]]] = deque()
        self.held: list[Any] = []
        self.is_active = False
        self._activate()

    def _activate(self) -> None:
        self.is_active = True
        self.heartbeats = BrokerHeartbeats(SESSION_MS)
        self.heartbeats.activate(self.appended, self.sim.now)
        self._tick()

    def fail_over(self) -> None:
        """Some of what was not committed survives; of the sessions nothing does."""
        if not self.is_active:
            return
        sim = self.sim
        sim.counts["controllers failed over"] += 1
        self.life += 1
        self.is_active = False
        surviving = [image for image, _ in self._uncommitted][: sim.rng.randint(0, len(self._uncommitted))]
        self._uncommitted.clear()
        for image in surviving:
            self._commit(image)
        self.appended = self.committed
        self.epoch += 1
        sim.after(sim.rng.choice((20, 150, 600)), self, self._activate)

    # --- decisions

    def decide(self, decision: Decide, answered: Callable[[Any], None] | None = None) -> Any:
        """The response; who waits for it gets it when all that it rests on is committed."""
        if not self.is_active:
            return None
        try:
            outcome = decision(self.appended)
        except ApiError:
            return None
        self._append(list(outcome.records))
        if answered is not None and self._uncommitted:
            self._uncommitted[-1][1].append(lambda: answered(outcome.response))
        elif answered is not None:
            answered(outcome.response)
        return outcome.response

    def _append(self, records: list[Any]) -> None:
        if not records:
            return
        image = self.appended
        self.appended, delta = apply_records(image, records, offset=image.offset + len(records), epoch=self.epoch)
        self.heartbeats.on_appended(self.appended, delta)
        self._uncommitted.append((self.appended, []))
        self.sim.after(self.sim.rng.choice((1, 1, 3, 15)), self, self._commit_next)

    def _commit_next(self) -> None:
        image, waiting = self._uncommitted.popleft()
        self._commit(image)
        for answer in waiting:
            answer()

    def _commit(self, image: MetadataImage) -> None:
        before, self.committed = self.committed, image
        self.sim.on_metadata(before, image)

    def _tick(self) -> None:
        sim = self.sim
        config, heartbeats = sim.config, self.heartbeats
        expired = heartbeats.next_deadline_ms()
        if expired is not None and expired <= sim.now:
            ended = self.decide(
                lambda image: fence_expired(image, config=config, heartbeats=heartbeats, now_ms=sim.now)
            )
            for broker_id, epoch in ended or ():
                heartbeats.end_session(broker_id, epoch)
        if sim.rng.random() < 0.045:
            self.decide(lambda image: balance_leaders(image, config=config))
            if sim.unclean:
                self.decide(lambda image: elect_unclean_leaders(image, config=config))
        sim.after(TICK_MS, self, self._tick)

    def on_probe(self, broker_id: int) -> None:
        """Nobody listens at the broker's address: it is fenced before its session ends."""
        seen = self.heartbeats.contact(broker_id)
        if not self.is_active or seen is None or self.sim.brokers[broker_id].alive:
            return
        if self.decide(
            lambda image: fence_dead(image, broker_id, seen, config=self.sim.config, heartbeats=self.heartbeats)
        ):
            self.heartbeats.end_session(broker_id, seen[0])
