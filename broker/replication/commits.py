"""Those who wait until what they appended is committed: producers with acks=all, and the group coordinator."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from protocol.errors import ErrorCode

OnCommitted = Callable[[ErrorCode], None]
"""Called once, with NONE when the records are committed."""


class CommitQueue:
    """Ordered by offset. Mostly in the order of the appends, but a repeated batch waits for the offset it got first."""

    __slots__ = ("_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, OnCommitted]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, end_offset: int, on_committed: OnCommitted) -> None:
        heapq.heappush(self._heap, (end_offset, next(self._order), on_committed))

    def release(self, high_watermark: int, outcome: ErrorCode) -> None:
        """All is committed below the high watermark; those who waited for it hear the outcome."""
        heap = self._heap
        while heap and heap[0][0] <= high_watermark:
            heapq.heappop(heap)[2](outcome)

    def fail(self, error: ErrorCode) -> None:
        """Nobody here will learn what becomes of the records: the leader is another one, or the partition is gone."""
        heap, self._heap = self._heap, []
        for _, _, on_committed in sorted(heap, key=lambda entry: entry[:2]):
            on_committed(error)
