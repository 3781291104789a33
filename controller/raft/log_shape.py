"""The shape of the log: where it begins and ends, which epochs it holds, how far it is durable and committed.

Two logs that hold the same epoch at the same offset are equal up to there; so (offset, epoch) says everything about a
prefix, and the core never needs to look at a record.
"""

from __future__ import annotations

from bisect import bisect_right
from enum import Enum
from typing import NamedTuple

from controller.raft.types import Batch, LogState, OffsetEpoch, RaftError


class Fit(Enum):
    VALID = "valid"
    DIVERGING = "diverging"
    SNAPSHOT = "snapshot"


class Validation(NamedTuple):
    """How a follower's end of log fits ours; ``at`` is the diverging end or the snapshot to fetch."""

    fit: Fit
    at: OffsetEpoch = OffsetEpoch(0, 0)


VALID = Validation(Fit.VALID)


class LogShape:
    def __init__(self, log: LogState) -> None:
        self.start = log.start
        self.snapshot_id = log.snapshot_id or (log.start if log.start.offset > 0 else None)
        self.end_offset = max(log.end_offset, log.start.offset)
        self.flushed = self.end_offset
        self.high_watermark = self.snapshot_id.offset if self.snapshot_id else log.start.offset
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, first in log.epochs:
            self._enter(epoch, max(first, log.start.offset))

    def _enter(self, epoch: int, first: int) -> None:
        while self._starts and self._starts[-1] >= first:
            self._starts.pop()
            self._epochs.pop()
        self._epochs.append(epoch)
        self._starts.append(first)

    @property
    def last_epoch(self) -> int:
        return self._epochs[-1] if self._epochs else self.start.epoch

    @property
    def last(self) -> OffsetEpoch:
        return OffsetEpoch(self.end_offset, self.last_epoch)

    def epoch_end(self, epoch: int) -> OffsetEpoch:
        """The end of ``epoch`` here, or of the latest earlier epoch that this log holds."""
        index = bisect_right(self._epochs, epoch) - 1
        if index < 0:
            return self.start
        end = self._starts[index + 1] if index + 1 < len(self._starts) else self.end_offset
        return OffsetEpoch(end, self._epochs[index])

    def validate(self, offset: int, epoch: int) -> Validation:
        """A log that ends here with this epoch, seen from ours (KIP-595, KIP-630)."""
        start = self.start
        if self.snapshot_id is not None and (
            offset < start.offset or (offset == start.offset and epoch != start.epoch) or epoch < start.epoch
        ):
            return Validation(Fit.SNAPSHOT, self.snapshot_id)
        if offset == 0 and epoch == 0:
            return VALID
        end = self.epoch_end(epoch)
        if end.epoch != epoch or end.offset < offset:
            return Validation(Fit.DIVERGING, end)
        return VALID

    def append(self, batch: Batch) -> None:
        if batch.base_offset != self.end_offset or batch.end_offset <= batch.base_offset:
            raise RaftError(
                f"batch [{batch.base_offset}, {batch.end_offset}) does not follow the end {self.end_offset}"
            )
        if batch.epoch < self.last_epoch:
            raise RaftError(f"batch of epoch {batch.epoch} after one of epoch {self.last_epoch}")
        if not self._epochs or batch.epoch > self._epochs[-1]:
            self._enter(batch.epoch, batch.base_offset)
        self.end_offset = batch.end_offset

    def truncation_point(self, diverging: OffsetEpoch) -> int:
        """Where to cut when the leader's log has ``diverging`` as the end of that epoch: what is shared at most."""
        own = self.epoch_end(diverging.epoch)
        if own.epoch == diverging.epoch:
            return min(own.offset, diverging.offset)
        return own.offset

    def truncate(self, end_offset: int) -> None:
        if end_offset < self.high_watermark:
            raise RaftError(
                f"asked to cut the log to {end_offset}, below the high watermark {self.high_watermark}: "
                "what is committed would vanish"
            )
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
        self.end_offset = min(self.end_offset, end_offset)
        self.flushed = min(self.flushed, end_offset)

    def move_start(self, start: OffsetEpoch) -> None:
        if not self.start.offset <= start.offset <= self.high_watermark:
            raise RaftError(f"a log from {self.start.offset} cannot begin at the snapshot {start}")
        while len(self._starts) > 1 and self._starts[1] <= start.offset:
            del self._starts[0], self._epochs[0]
        if self._starts and self._starts[0] < start.offset:
            self._starts[0] = start.offset
        self.start = start

    def install(self, snapshot_id: OffsetEpoch) -> None:
        if snapshot_id.offset < self.high_watermark:
            raise RaftError(f"the snapshot {snapshot_id} ends before the high watermark {self.high_watermark}")
        self.start = self.snapshot_id = snapshot_id
        self.end_offset = self.flushed = self.high_watermark = snapshot_id.offset
        self._epochs, self._starts = [], []
