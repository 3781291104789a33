"""Replies that wait until the records behind them are committed, where the internal topic has several replicas."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from broker.coordinator.effects import Reply
from broker.partition import Partition
from protocol.errors import ErrorCode

Send = Callable[[Sequence[Reply]], None]

_NEVER_HERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR)


class _Held(NamedTuple):
    end_offset: int
    """All below it may be told of in the replies."""
    deadline_s: float
    replies: list[Reply]


class UncommittedReplies:
    """In the order of the appends. Owned by one shard.

    A reply that takes longer than `offsets.commit.timeout.ms` is given up, as in Kafka: the client hears that there is
    no coordinator for the moment, while what was appended may be committed later. That also counts for replies to
    reads, which wait behind what they may tell of: other answers of the same connection wait behind them.
    """

    __slots__ = ("_appended", "_committed", "_expire", "_held", "_partition", "_send", "_timeout_s", "_timer")

    def __init__(self, partition: Partition, timeout_ms: int, send: Send, expire: Send) -> None:
        self._partition = partition
        self._timeout_s = timeout_ms / 1000
        self._send = send
        self._expire = expire
        self._held: deque[_Held] = deque()
        """Their deadlines are in order, too: all have the same time."""
        self._appended = 0
        self._committed = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_pending(self) -> bool:
        """Something that was appended is not committed yet: whatever is told now may tell of it."""
        return self._committed < self._appended

    def hold(self, replies: Sequence[Reply]) -> None:
        """Until all that is in the log now is committed."""
        end_offset = self._partition.log.log_end_offset
        if replies:
            self._held.append(_Held(end_offset, self._loop.time() + self._timeout_s, list(replies)))
            self._arm()
        if end_offset > self._appended:
            self._appended = end_offset
            self._partition.when_committed(end_offset, partial(self._on_committed, end_offset))
        elif not self.is_pending:
            self._release()

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def _on_committed(self, end_offset: int, outcome: ErrorCode) -> None:
        if outcome in _NEVER_HERE:
            return  # the shard is closed in a moment, and refuses everyone who waits
        self._committed = max(self._committed, end_offset)
        self._release()

    def _release(self) -> None:
        held = self._held
        while held and held[0].end_offset <= self._committed:
            self._send(held.popleft().replies)

    def _arm(self) -> None:
        """One timer for all. It may find that everything has left in time, as mostly it has."""
        if self._timer is None and self._held:
            self._timer = self._loop.call_at(self._held[0].deadline_s, self._on_deadline)

    def _on_deadline(self) -> None:
        self._timer = None
        held = self._held
        now_s = self._loop.time()
        while held and held[0].deadline_s <= now_s:
            self._expire(held.popleft().replies)
        self._arm()

    def clear(self) -> None:
        """Everyone who waits has been refused."""
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
