"""`leader-epoch-checkpoint`: at which offset each leader epoch of a partition begins.

A replica that comes back asks the leader where the epoch it last wrote in ended, and truncates to there
(KIP-101, KIP-279); a consumer finds out the same way that its log was cut. The file has the frame of a
checkpoint with "epoch start_offset" lines.

Invariant: both epochs and start offsets strictly ascend. An epoch in which nothing was written leaves no
entry."""

from __future__ import annotations

import logging
import os
import threading
from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import NamedTuple

from storage.checkpoints import CheckpointFile, integer
from storage.disk import DISK, Disk

FILE_NAME = "leader-epoch-checkpoint"
UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1

_log = logging.getLogger(__name__)
_epoch_of = attrgetter("epoch")
_start_of = attrgetter("start_offset")


class EpochEntry(NamedTuple):
    """`start_offset` is the offset of the first record written in `epoch`."""

    epoch: int
    start_offset: int


class EpochEndOffset(NamedTuple):
    """Answer to OffsetForLeaderEpoch: `epoch`, at or below the one asked for, ended before `end_offset`."""

    epoch: int
    end_offset: int


UNDEFINED = EpochEndOffset(UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET)


class LeaderEpochCheckpointFile(CheckpointFile[EpochEntry]):
    """The lines of the file."""

    __slots__ = ()

    def format_entry(self, entry: EpochEntry) -> str:
        return f"{entry.epoch} {entry.start_offset}"

    def parse_entry(self, fields: list[str]) -> EpochEntry:
        if len(fields) != 2:
            raise ValueError("an epoch and an offset were expected")
        return EpochEntry(integer(fields[0]), integer(fields[1]))


class LeaderEpochCache:
    """The entries in memory, and the file behind them.

    With `autoflush` every new epoch is durable when `assign` returns, as in Kafka, at the price of two
    fsyncs. A log that recovers epochs from its batches after a crash may turn it off and call `flush` in a
    thread instead, at the latest before its recovery point passes the new entry. Truncations are never
    flushed at once: an entry too many is cut again at the next start, by the log's start and end offsets."""

    __slots__ = ("_dirty", "_entries", "_file", "_flush_lock", "autoflush")

    def __init__(self, directory: str, *, autoflush: bool = True, ops: Disk = DISK) -> None:
        """Reads the file in the partition's directory, if there is one. Raises CorruptCheckpoint."""
        self.autoflush = autoflush
        self._file = LeaderEpochCheckpointFile(os.path.join(directory, FILE_NAME), ops=ops)
        self._flush_lock = threading.Lock()
        # Replaced, never changed in place: a flush in a thread sees one state or the other.
        self._entries: list[EpochEntry] = []
        for entry in self._file.read_entries():
            self._assign(entry)
        self._dirty = False

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All entries, oldest first."""
        return tuple(self._entries)

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def dirty(self) -> bool:
        """Whether memory is ahead of the file."""
        return self._dirty

    @property
    def latest_entry(self) -> EpochEntry | None:
        return self._entries[-1] if self._entries else None

    @property
    def earliest_entry(self) -> EpochEntry | None:
        return self._entries[0] if self._entries else None

    @property
    def latest_epoch(self) -> int | None:
        return self._entries[-1].epoch if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that the leader of `epoch` writes from `start_offset` on. To repeat the latest does nothing.

        Entries that contradict the new one, by a later epoch or a later offset, are removed: the log of the
        current leader is the truth.
        """
        latest = self._entries[-1] if self._entries else None
        if latest is not None and latest.epoch == epoch and start_offset >= latest.start_offset >= 0:
            return  # every append asks; leave at once
        if self._assign(EpochEntry(epoch, start_offset)) and self.autoflush:
            self.flush()

    def _assign(self, new: EpochEntry) -> bool:
        if new.epoch < 0 or new.start_offset < 0:
            raise ValueError(f"{new} has a negative epoch or offset")
        entries = self._entries
        if entries and new.epoch == entries[-1].epoch and new.start_offset >= entries[-1].start_offset:
            return False
        keep = len(entries)
        while keep and (entries[keep - 1].epoch >= new.epoch or entries[keep - 1].start_offset >= new.start_offset):
            keep -= 1
        removed = entries[keep:]
        # One entry replaced at the same offset is an epoch in which nothing was written: not worth a word.
        if len(removed) > 1 or (removed and removed[0].start_offset != new.start_offset):
            _log.warning("%s: %s displaces the conflicting entries %s", self.path, new, removed)
        self._replace([*entries[:keep], new])
        return True

    def on_recovered(self, epoch: int, offset: int) -> None:
        """A batch of `epoch` begins at `offset`; the batches behind it will be told of, too. Entries that say
        otherwise are from before a truncation that the file had not heard of: the batches are the truth.
        """
        entries = self._entries
        at = bisect_right(entries, offset, key=_start_of)
        if not at or entries[at - 1].epoch != epoch:
            keep = at
            while keep and (entries[keep - 1].epoch > epoch or entries[keep - 1].start_offset == offset):
                keep -= 1
            kept = entries[:keep]
            is_known = bool(kept) and kept[-1].epoch == epoch
            self._replace(kept if is_known else [*kept, EpochEntry(epoch, offset)])

    def end_offset_for(self, requested_epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Where the largest epoch at or below the requested one ended: where the next began, or at the log
        end.

        UNDEFINED when the requested epoch is later than any that is known here. When it is earlier than all
        of them, the answer is the requested epoch itself with the start of the first: the asker has to
        truncate to there."""
        entries = self._entries
        if requested_epoch == UNDEFINED_EPOCH:
            return UNDEFINED
        if entries and entries[-1].epoch == requested_epoch:
            return EpochEndOffset(requested_epoch, log_end_offset)
        higher = bisect_right(entries, requested_epoch, key=_epoch_of)
        if higher == len(entries):
            return UNDEFINED
        epoch = entries[higher - 1].epoch if higher else requested_epoch
        return EpochEndOffset(epoch, entries[higher].start_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch in which `offset` was or will be written; None below the first known epoch."""
        at = bisect_right(self._entries, offset, key=_start_of)
        return self._entries[at - 1].epoch if at else None

    def entry_for(self, epoch: int) -> EpochEntry | None:
        """The entry of exactly this epoch."""
        at = bisect_left(self._entries, epoch, key=_epoch_of)
        if at < len(self._entries) and self._entries[at].epoch == epoch:
            return self._entries[at]
        return None

    def previous_epoch(self, epoch: int | None = None) -> int | None:
        """The latest epoch before `epoch`, or before the latest one if none is given."""
        if epoch is None:
            return self._entries[-2].epoch if len(self._entries) > 1 else None
        at = bisect_left(self._entries, epoch, key=_epoch_of)
        return self._entries[at - 1].epoch if at else None

    def next_epoch(self, epoch: int) -> int | None:
        """The first epoch after `epoch`."""
        at = bisect_right(self._entries, epoch, key=_epoch_of)
        return self._entries[at].epoch if at < len(self._entries) else None

    def truncate_from_end(self, end_offset: int) -> None:
        """The log was truncated to `end_offset`: remove the epochs that begin there or later."""
        keep = bisect_left(self._entries, end_offset, key=_start_of)
        if end_offset >= 0 and keep < len(self._entries):
            self._replace(self._entries[:keep])

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now starts at `start_offset`: the last epoch from before covers it and now begins there."""
        past = bisect_right(self._entries, start_offset, key=_start_of)
        if past:
            updated = EpochEntry(self._entries[past - 1].epoch, start_offset)
            if past > 1 or updated != self._entries[0]:
                self._replace([updated, *self._entries[past:]])

    def clear(self) -> None:
        """Forget all epochs, in memory."""
        self._replace([])

    def clear_and_flush(self) -> None:
        """Forget all epochs: the log was truncated fully."""
        self._replace([])
        self.flush()

    def _replace(self, entries: list[EpochEntry]) -> None:
        self._entries = entries
        self._dirty = True

    def flush(self) -> None:
        """Make the file equal to memory, durably. Blocks; safe in a thread."""
        with self._flush_lock:
            self._dirty = False  # before the entries are taken: a change from now on makes it dirty again
            try:
                self._file.write_entries(self._entries)
            except OSError:
                self._dirty = True
                raise

    def update_parent_dir(self, directory: str) -> None:
        """The partition's directory was renamed."""
        self._file.path = os.path.join(directory, FILE_NAME)
