"""What the active controller does of its own accord, on one timer that is set to whatever is due next.

It fences brokers that fell silent and looks whether those that missed a heartbeat are still there, moves leadership
back to preferred replicas, elects unclean leaders where a topic allows that, and writes a no-op record when nothing
else was written for a while, by which followers see that they are up to date and how long ago that was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from config.broker import BrokerConfig
from controller.elections import balance_leaders, elect_unclean_leaders
from controller.heartbeats import FENCE_AGAIN_MS, fence_expired
from controller.image import MetadataImage
from controller.outcome import Outcome
from protocol.metadata.no_op_record import NoOpRecord

if TYPE_CHECKING:
    from controller.controller import Controller


class _Periodic:
    """Work that is done in steps of bounded size: the answer of a step says whether the next should follow at once."""

    def __init__(self, interval_ms: int, decide: Callable[[MetadataImage], Outcome[bool]]) -> None:
        self.interval_ms = interval_ms
        self.decide = decide
        self.due_ms = 0


class Maintenance:
    """Runs only while its controller is active. Times are the loop's, in milliseconds."""

    def __init__(self, controller: Controller, config: BrokerConfig) -> None:
        self._controller = controller
        self._idle_ms = config.metadata_max_idle_interval_ms
        self._last_append_ms = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._fence_again_ms = 0
        self._periodic = [
            _Periodic(
                config.unclean_leader_election_interval_ms,
                lambda image: elect_unclean_leaders(image, config=controller.appended_config),
            )
        ]
        if config.auto_leader_rebalance_enable:
            self._periodic.append(
                _Periodic(
                    config.leader_imbalance_check_interval_seconds * 1000,
                    lambda image: balance_leaders(image, config=controller.appended_config),
                )
            )

    def start(self) -> None:
        now = self._controller.monotonic_ms()
        self._last_append_ms = now
        for work in self._periodic:
            work.due_ms = now + work.interval_ms
        self._arm()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_appended(self) -> None:
        self._last_append_ms = self._controller.monotonic_ms()

    def on_contact(self) -> None:
        """A broker may have been heard of for the first time: its session may end before anything else is due."""
        if self._timer is not None and self._due_ms() < self._timer_ms:
            self._arm()

    def _due_ms(self) -> int:
        deadlines = [work.due_ms for work in self._periodic]
        if self._idle_ms > 0:
            deadlines.append(self._last_append_ms + self._idle_ms)
        sessions = (self._session_due_ms(), self._controller.heartbeats.next_suspicion_ms())
        deadlines += [due for due in sessions if due is not None]
        return min(deadlines)

    def _session_due_ms(self) -> int | None:
        due = self._controller.heartbeats.next_deadline_ms()
        return None if due is None else max(due, self._fence_again_ms)

    def _arm(self) -> None:
        self.stop()
        self._timer_ms = self._due_ms()
        self._timer = asyncio.get_running_loop().call_at((self._timer_ms + 1) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        controller = self._controller
        now = controller.monotonic_ms()
        session = self._session_due_ms()
        if session is not None and session <= now:
            self._fence_expired(now)
        for broker_id in controller.heartbeats.newly_silent(now):
            controller.probes.suspect_unless_starting(broker_id)
        for work in self._periodic:
            if work.due_ms <= now:
                more = controller.change_unasked(work.decide)
                work.due_ms = now + (1 if more else work.interval_ms)
        if self._idle_ms > 0 and self._last_append_ms + self._idle_ms <= now:
            self._last_append_ms = now
            controller.change_unasked(_no_op)
        if controller.is_active:
            self._arm()

    def _fence_expired(self, now_ms: int) -> None:
        controller = self._controller

        def decide(image: MetadataImage) -> Outcome[list[tuple[int, int]]]:
            return fence_expired(
                image, config=controller.appended_config, heartbeats=controller.heartbeats, now_ms=now_ms
            )

        expired = controller.change_unasked(decide)
        if expired is None:
            self._fence_again_ms = now_ms + FENCE_AGAIN_MS
            return
        for broker_id, broker_epoch in expired:
            controller.heartbeats.end_session(broker_id, broker_epoch)


def _no_op(image: MetadataImage) -> Outcome[Any]:
    return Outcome([NoOpRecord()], None)
