"""The disks of the replication simulation: logs as lists, under the product's own producer state and leader epochs.

What a log does here is what `storage.log.Log` does as far as `broker.partition` asks for it. What survives a crash of
the process is all that was appended, and a high watermark from some time ago; a loss of power takes what was not
synced.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from broker.replication.follower import LogPosition
from protocol.records import BatchHeader
from protocol.uuids import Uuid
from storage.errors import StorageError, UnexpectedAppendOffset
from storage.leader_epochs import LeaderEpochCache
from storage.producer_state import ProducerStateManager
from storage.results import AppendOrigin, AppendResult

TOPIC_NAME = "t"

Entry = tuple[int, BatchHeader]
"""The leader epoch it was written in, and a batch of one record: its producer and sequence say which."""
NOTHING: Entry = (-1, BatchHeader(*(-1,) * len(BatchHeader._fields)))
"""Below where a log begins that was dropped altogether."""


class LogSettings(NamedTuple):
    min_insync_replicas: int


class LogRules(NamedTuple):
    flushes: bool = False


class ModelDisk:
    """A log directory. Offline it stays until the broker is started again; a full one may have room later."""

    def __init__(self, directory_id: Uuid) -> None:
        self.id = directory_id
        self.online = True
        self.is_full = False
        self.logs: dict[int, ModelLog] = {}
        self.clean_epoch: int | None = None
        """The mark of a clean stop: the broker epoch in it. None without one."""

    @property
    def mark(self) -> tuple[bool, int] | None:
        """What a broker finds at its start; None if the disk does not answer."""
        if not self.online:
            return None
        return (False, -1) if self.clean_epoch is None else (True, self.clean_epoch)

    def check_writable(self) -> None:
        if not self.online or self.is_full:
            raise StorageError("the disk is full" if self.online else "the disk is offline")


class ModelLog:
    def __init__(self, index: int, disk: ModelDisk, directory: str, settings: LogSettings) -> None:
        self.index = index
        self.disk = disk
        self.config = settings
        self.rules = LogRules()
        self.log_dir = disk
        self.entries: list[Entry] = []
        self.log_start_offset = 0
        self.high_watermark = 0
        self.checkpointed = 0
        self.synced = 0
        self.leader_epochs = LeaderEpochCache(directory, autoflush=False)
        self.producers = ProducerStateManager(TOPIC_NAME, index, directory)
        self.on_high_watermark: Callable[[int, int], None] = lambda before, after: None
        disk.logs[index] = self

    @property
    def log_end_offset(self) -> int:
        return len(self.entries)

    @property
    def last_stable_offset(self) -> int:
        return self.high_watermark

    def values(self, start: int, end: int) -> list[BatchHeader]:
        return [header for _, header in self.entries[start:end]]

    def advance_high_watermark(self, offset: int) -> bool:
        offset = min(offset, len(self.entries))
        if offset <= self.high_watermark:
            return False
        before, self.high_watermark = self.high_watermark, offset
        self.on_high_watermark(before, offset)
        return True

    def advance_log_start(self, offset: int) -> None:
        if self.log_start_offset < offset <= self.high_watermark:
            self.log_start_offset = offset
            self.leader_epochs.truncate_from_start(offset)

    def append_as_leader(
        self, header: BatchHeader, *, leader_epoch: int, now_ms: int, origin: AppendOrigin
    ) -> AppendResult:
        self.disk.check_writable()
        stored = self.producers.find_duplicate(header)
        if stored is not None:
            return AppendResult(stored.first_offset, stored.last_offset, -1, 0, stored.timestamp, True)
        end = len(self.entries)
        self._note(header, end, origin)
        self.leader_epochs.assign(leader_epoch, end)
        self.entries.append((leader_epoch, header))
        return AppendResult(end, end, -1, 0, header.max_timestamp)

    def append_as_follower(self, offset: int, entries: list[Entry]) -> None:
        self.disk.check_writable()
        if offset != len(self.entries):
            raise UnexpectedAppendOffset(offset, len(self.entries))
        for epoch, header in entries:
            end = len(self.entries)
            self._note(header, end, AppendOrigin.REPLICATION)
            self.leader_epochs.assign(epoch, end)
            self.entries.append((epoch, header))

    def _note(self, header: BatchHeader, offset: int, origin: AppendOrigin) -> None:
        """The product's check of the producer's sequence, and what it remembers of the batch."""
        info = self.producers.prepare_update(header.producer_id, origin)
        info.append(header, base_offset=offset)
        self.producers.update(info)
        self.producers.update_map_end_offset(offset + 1)

    def truncate_to(self, offset: int) -> None:
        end = len(self.entries)
        self.leader_epochs.truncate_from_end(offset)
        if offset >= end:
            return
        del self.entries[offset:]
        self.high_watermark = min(self.high_watermark, offset)
        self.checkpointed = min(self.checkpointed, offset)
        self.synced = min(self.synced, offset)
        self.producers.truncate_and_reload(0, offset, 0)
        for at in range(offset):
            if self.entries[at] is not NOTHING:
                self._note(self.entries[at][1], at, AppendOrigin.REPLICATION)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self.entries = [NOTHING] * offset
        self.log_start_offset = self.high_watermark = self.checkpointed = self.synced = offset
        self.leader_epochs.clear()
        self.producers.truncate_fully_and_start_at(offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.leader_epochs.end_offset_for(epoch, len(self.entries))

    def position(self) -> LogPosition:
        latest = self.leader_epochs.latest_epoch
        return LogPosition(
            self.log_start_offset,
            self.high_watermark,
            len(self.entries),
            -1 if latest is None else latest,
            self.end_offset_for_epoch,
        )

    # --- the process ends

    def on_crash(self, rng: Random, *, loses_unsynced: bool) -> bool:
        """Whether records are gone."""
        end = len(self.entries)
        if loses_unsynced:
            self.truncate_to(self.synced)
        # As recovery does it: epochs that begin behind the end are cut.
        self.leader_epochs.truncate_from_end(len(self.entries))
        self.high_watermark = rng.randint(self.checkpointed, max(self.checkpointed, self.high_watermark))
        return len(self.entries) < end

    def on_stop(self) -> None:
        self.synced = len(self.entries)
        self.checkpointed = self.high_watermark
