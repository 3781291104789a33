"""Hands out producer ids from blocks that the controller allots to this broker.

An id is never given twice: the block is in the metadata log before its first id leaves, and what is left of a
block when the broker stops is never used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

AllocateBlock = Callable[[], Awaitable[tuple[int, int]]]


class ProducerIds:
    def __init__(self, allocate: AllocateBlock) -> None:
        self._allocate = allocate
        self._next = 0
        self._end = 0
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        async with self._lock:
            if self._next == self._end:
                first, count = await self._allocate()
                self._next, self._end = first, first + count
            given = self._next
            self._next += 1
            return given
