"""Deadlines of one shard: a heap with keys, where a key has at most one deadline and cancelling is cheap."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import NamedTuple

from broker.coordinator.effects import Effects

Action = Callable[[int], Effects]
"""Called with the time at which the deadline was found due."""


class _Timer(NamedTuple):
    deadline_ms: int
    serial: int
    """Breaks ties in the order of scheduling, so that a run is the same for the same inputs."""
    key: Hashable


class Timers:
    """Cancelled and replaced entries stay in the heap until they surface; the live ones are in ``_live``.

    Heartbeats reschedule far more often than deadlines fire, so stale entries are dropped in bulk once they are the
    majority: the heap never holds more than twice the live timers plus a constant.
    """

    __slots__ = ("_heap", "_live", "_serial")

    def __init__(self) -> None:
        self._heap: list[_Timer] = []
        self._live: dict[Hashable, tuple[int, Action]] = {}
        self._serial = 0

    def schedule(self, key: Hashable, deadline_ms: int, action: Action) -> None:
        """Replaces the deadline the key had."""
        self._serial += 1
        self._live[key] = (self._serial, action)
        heapq.heappush(self._heap, _Timer(deadline_ms, self._serial, key))
        if len(self._heap) > 2 * len(self._live) + 64:
            self._heap = [timer for timer in self._heap if self._is_live(timer)]
            heapq.heapify(self._heap)

    def cancel(self, key: Hashable) -> None:
        self._live.pop(key, None)

    def postpone(self, delay_ms: int) -> None:
        """Every deadline is later by that much; their order stays."""
        self._heap = [
            timer._replace(deadline_ms=timer.deadline_ms + delay_ms) for timer in self._heap if self._is_live(timer)
        ]
        heapq.heapify(self._heap)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._live

    def __len__(self) -> int:
        return len(self._live)

    @property
    def next_deadline_ms(self) -> int | None:
        heap = self._heap
        while heap and not self._is_live(heap[0]):
            heapq.heappop(heap)
        return heap[0].deadline_ms if heap else None

    def run_due(self, now_ms: int) -> Effects:
        """Fires every deadline at or before now, also those that the actions themselves set for now."""
        effects = Effects()
        while (deadline := self.next_deadline_ms) is not None and deadline <= now_ms:
            timer = heapq.heappop(self._heap)
            _, action = self._live.pop(timer.key)
            effects.extend(action(now_ms))
        return effects

    def _is_live(self, timer: _Timer) -> bool:
        live = self._live.get(timer.key)
        return live is not None and live[0] == timer.serial
