"""Replies that wait until the records behind them are committed, where the internal topic has several replicas."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from broker.coordinator.effects import Reply
from broker.partition import Partition
from protocol.errors import ErrorCode

Send = Callable[[Sequence[Reply]], None]


class _Held:
    __slots__ = ("replies", "timer")

    def __init__(self, replies: Sequence[Reply]) -> None:
        self.replies = list(replies)
        self.timer: asyncio.TimerHandle | None = None


class UncommittedReplies:
    """In the order of the appends. Owned by one shard.

    A reply that takes longer than `offsets.commit.timeout.ms` is given up, as in Kafka: the client hears that there is
    no coordinator for the moment, while what was appended may be committed later.
    """

    __slots__ = ("_expire", "_held", "_partition", "_send", "_timeout_s")

    def __init__(self, partition: Partition, timeout_ms: int, send: Send, expire: Send) -> None:
        self._partition = partition
        self._timeout_s = timeout_ms / 1000
        self._send = send
        self._expire = expire
        self._held: deque[_Held] = deque()

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, replies: Sequence[Reply]) -> None:
        """Until all that is in the log now is committed."""
        held = _Held(replies)
        self._held.append(held)
        end_offset = self._partition.log.log_end_offset
        self._partition.when_committed(end_offset, partial(self._on_committed, held))
        if held.replies:
            held.timer = asyncio.get_running_loop().call_later(self._timeout_s, self._on_deadline, held)

    def follow(self, replies: Sequence[Reply]) -> None:
        """Replies without records: they may tell of what is not committed yet, so they go out behind it."""
        self._held[-1].replies += replies

    def _on_committed(self, held: _Held, outcome: ErrorCode) -> None:
        if held not in self._held:
            return
        if outcome is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return  # the shard is closed in a moment, and refuses everyone who waits
        while self._held:
            first = self._held.popleft()
            self._release(first)
            self._send(first.replies)
            if first is held:
                break

    def _on_deadline(self, held: _Held) -> None:
        replies, held.replies = held.replies, []
        self._expire(replies)

    def _release(self, held: _Held) -> None:
        if held.timer is not None:
            held.timer.cancel()

    def clear(self) -> None:
        """Everyone who waits has been refused."""
        held, self._held = self._held, deque()
        for one in held:
            self._release(one)
