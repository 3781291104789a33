"""Produce with acks=all, while the followers fetch what was appended."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import NamedTuple

from broker.partition import Partition
from protocol.errors import ErrorCode
from protocol.messages.produce import PartitionProduceResponse, ProduceResponse


class Uncommitted(NamedTuple):
    """Records that are in the leader's log. `answer` is what the client gets once they are committed."""

    partition: Partition
    end_offset: int
    answer: PartitionProduceResponse


class WaitingProduce:
    """Answers when all its partitions are committed, or at the client's deadline with what is known then.

    Owned by the partitions it waits on and by its timer. What a partition says after the answer is out, or after the
    connection was lost, changes nothing any more.
    """

    __slots__ = ("_left", "_response", "_timer", "future")

    def __init__(self, uncommitted: list[Uncommitted], response: ProduceResponse, timeout_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self.future: asyncio.Future[ProduceResponse] = loop.create_future()
        self._response = response
        self._left = {id(one): one for one in uncommitted}
        self._timer: asyncio.TimerHandle | None = None
        for one in uncommitted:
            one.partition.when_committed(one.end_offset, partial(self._on_committed, one))
        if self._left:
            self._timer = loop.call_later(max(timeout_ms, 0) / 1000, self._on_deadline)
            self.future.add_done_callback(self._disarm)

    def _on_committed(self, one: Uncommitted, outcome: ErrorCode) -> None:
        if self.future.done() or self._left.pop(id(one), None) is None:
            return
        one.answer.error_code = outcome
        if not self._left:
            self.future.set_result(self._response)

    def _on_deadline(self) -> None:
        if not self.future.done():
            for one in self._left.values():
                one.answer.error_code = ErrorCode.REQUEST_TIMED_OUT
            self._left = {}
            self.future.set_result(self._response)

    def _disarm(self, _: asyncio.Future[ProduceResponse]) -> None:
        if self._timer is not None:
            self._timer.cancel()
