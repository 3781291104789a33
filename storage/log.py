"""One partition's log: an ordered list of segments, of which only the last is written.

All methods run on the event loop and none waits for the disk, except `flush`, which is awaited, and `close`. The
offsets that everything else turns on are kept here: log start offset <= high watermark <= log end offset, and the
last stable offset between the first two. They change only after the bytes are in the file.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Callable
from typing import Self

from config.topic import LogConfig
from protocol.records import HEADER_SIZE, BatchHeader, read_header
from protocol.uuids import Uuid
from storage import log_read
from storage.append import AppendRules, check_client_batch, check_internal_batches
from storage.deletion import DelayedDeletions
from storage.disk import DISK, Buffer, Disk
from storage.errors import OffsetOutOfRange, StorageError
from storage.log_append import append_given, append_one
from storage.log_directory import LogDirectory
from storage.log_sync import LogSync
from storage.producer_replay import aborted_txn, rebuild_producer_state
from storage.producer_state import CompletedTxn, ProducerStateManager
from storage.recovery import LoadedLog, LogLoader
from storage.results import AppendOrigin, AppendResult, LogRead, TimestampAndOffset
from storage.retention import deletable_segments
from storage.segment import Segment

_log = logging.getLogger(__name__)
_new_tuple = tuple.__new__


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Log:
    """See the module's docstring. One owner, the partition (or the metadata log); no locks."""

    __slots__ = (
        "_disk",
        "_last_flush_ms",
        "_sync",
        "clock",
        "config",
        "deletions",
        "directory",
        "high_watermark",
        "leader_epochs",
        "log_dir",
        "log_end_offset",
        "log_start_offset",
        "on_roll",
        "on_truncated",
        "partition",
        "producers",
        "rules",
        "segments",
        "successor",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        directory: str,
        topic: str,
        partition: int,
        config: LogConfig,
        loaded: LoadedLog,
        *,
        topic_id: Uuid,
        log_dir: LogDirectory,
        deletions: DelayedDeletions,
        disk: Disk,
        clock: Callable[[], int],
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.directory = directory
        self.config = config
        self.segments = loaded.segments
        self.producers = loaded.producers
        self.leader_epochs = loaded.leader_epochs
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.high_watermark = loaded.log_start_offset
        self.log_dir = log_dir
        self.deletions = deletions
        self.clock = clock
        self.on_roll: Callable[[Log], None] | None = None
        self.on_truncated: Callable[[int, bool], None] | None = None
        """Told of every truncation, after it: the new end, and whether every record was dropped."""
        self.successor: Log | None = None
        """The copy in another log directory that took this log's place."""
        self._disk = disk
        self.rules = AppendRules(config)
        self._last_flush_ms = clock()
        self._sync = LogSync(directory, log_dir, loaded.segments, loaded.leader_epochs, loaded.recovery_point, disk)

    @classmethod
    def open(
        cls,
        directory: str,
        topic: str,
        partition: int,
        config: LogConfig,
        *,
        topic_id: Uuid = Uuid.ZERO,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        clean: bool = False,
        log_dir: LogDirectory | None = None,
        deletions: DelayedDeletions | None = None,
        producer_id_expiration_ms: int | None = None,
        gapless: bool = False,
        disk: Disk = DISK,
        clock: Callable[[], int] = wall_clock_ms,
    ) -> Self:
        """Open or create the log in `directory`. Blocks: a log that was not closed cleanly is recovered.

        `log_start_offset` and `recovery_point` come from the checkpoints of the log directory. Without a
        `log_dir` the log stands alone: an fsync that fails then takes nothing but this log offline. `gapless` is
        for the metadata log: see LogLoader.
        """
        os.makedirs(directory, exist_ok=True)
        producers = ProducerStateManager(topic, partition, directory, ops=disk)
        if producer_id_expiration_ms is not None:
            producers.producer_id_expiration_ms = producer_id_expiration_ms
        loader = LogLoader(
            directory, f"{topic}-{partition}", config, producers, disk=disk, now_ms=clock(), gapless=gapless
        )
        loaded = loader.load(log_start_offset=log_start_offset, recovery_point=recovery_point, clean=clean)
        return cls(
            directory,
            topic,
            partition,
            config,
            loaded,
            topic_id=topic_id,
            log_dir=log_dir or LogDirectory(os.path.dirname(directory) or ".", disk=disk),
            deletions=deletions or DelayedDeletions(disk),
            disk=disk,
            clock=clock,
        )

    def __repr__(self) -> str:
        return f"Log({self.topic}-{self.partition}, [{self.log_start_offset}, {self.log_end_offset}))"

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.partition}"

    # --- offsets

    @property
    def recovery_point(self) -> int:
        """All below is durable. Recovery after a crash starts here."""
        return self._sync.recovery_point

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed readers stop: before the first transaction that is not decided and replicated."""
        unstable = self.producers.first_unstable_offset
        return self.high_watermark if unstable is None or unstable > self.high_watermark else unstable

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    def advance_high_watermark(self, offset: int) -> bool:
        """Never falls (but by truncation): consumers may have read up to it. True if it moved."""
        offset = min(offset, self.log_end_offset)
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.producers.on_high_watermark_updated(offset)
        return True

    def advance_log_start(self, offset: int) -> bool:
        """Forget the records below `offset`; their segments go with the next retention run. True if it moved."""
        if offset > self.high_watermark:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.high_watermark)
        if offset <= self.log_start_offset:
            return False
        self.log_start_offset = offset
        self.leader_epochs.truncate_from_start(offset)
        self.producers.on_log_start_offset_incremented(offset)
        return True

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    # --- appending

    def append_as_leader(
        self,
        records: memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = -1,
    ) -> AppendResult:
        """Check, number and store a batch. `records` must be writable: offset and epoch are patched in place.

        A client may send one batch; coordinators may append several, and the Raft leader several that have
        their offsets and epoch already. Raises ApiError for what the sender did wrong, StorageError for what
        the disk did; in both cases nothing was appended.
        """
        if not self.log_dir.online:
            raise self.log_dir.offline_error()
        if origin is AppendOrigin.CLIENT:
            header = check_client_batch(records, self.rules, now_ms)
            return append_one(self, records, header, leader_epoch, now_ms, origin, transaction_version)
        if origin is AppendOrigin.COORDINATOR:
            results = [
                append_one(self, batch, header, leader_epoch, now_ms, origin, transaction_version)
                for batch, header in check_internal_batches(records, self.rules)
            ]
            return results[-1]._replace(first_offset=results[0].first_offset)
        return append_given(self, records, now_ms, leader_epoch)

    def append_as_follower(self, records: memoryview) -> AppendResult:
        """Store what the leader sent, byte for byte; a cut batch at the end is left out.

        The leader's log may start in the middle of a batch, after DeleteRecords: then ours begins with that batch.
        """
        if not self.log_dir.online:
            raise self.log_dir.offline_error()
        if self.log_start_offset == self.log_end_offset and len(records) >= HEADER_SIZE:
            first = read_header(records)
            if first.base_offset < self.log_end_offset < first.next_offset:
                self.truncate_fully_and_start_at(first.base_offset)
        return append_given(self, records, self.clock())

    def advance_end(self, end_offset: int) -> None:
        """The bytes are in the file: now they are part of the log."""
        self.log_end_offset = end_offset
        self.producers.update_map_end_offset(end_offset)

    def write_batches(
        self,
        data: Buffer,
        headers: tuple[BatchHeader, ...],
        now_ms: int,
        max_timestamp: int,
        completed: CompletedTxn | None,
    ) -> None:
        """Into the active segment, rolling first if it is time. StorageError: nothing has changed for readers."""
        segment = self.segments.active
        first, last = headers[0], headers[-1]
        try:
            if segment.should_roll(self.config, len(data), last.last_offset, max_timestamp, now_ms):
                segment = self._roll(first.base_offset, now_ms)
            if first.partition_leader_epoch >= 0:
                for header in headers:
                    self.leader_epochs.assign(header.partition_leader_epoch, header.base_offset)
            if completed is not None and completed.is_aborted:
                # Before the marker: if the marker cannot be written, the entry is taken back, not missed.
                segment.txn_index.append(aborted_txn(self.producers, completed))
            segment.append(data, headers, len(headers))
        except OSError as error:
            if completed is not None and completed.is_aborted:
                segment.txn_index.truncate_to(completed.last_offset)
            _log.error("%s: appending %d bytes at offset %d failed: %s", self.name, len(data), first[0], error)
            raise StorageError(f"Appending to {self.name} failed: {error}", self.log_dir.path) from error

    # --- rolling and truncation

    def roll(self, expected_next_offset: int = 0) -> None:
        """Start a new segment, at the log's end or above it. Nothing happens if the active one is empty."""
        try:
            self._roll(expected_next_offset, self.clock())
        except OSError as error:
            raise StorageError(f"Rolling {self.name} failed: {error}", self.log_dir.path) from error

    def _roll(self, expected_next_offset: int, now_ms: int) -> Segment:
        base_offset = max(expected_next_offset, self.log_end_offset)
        active = self.segments.active
        if base_offset == active.base_offset:
            return active
        active.become_inactive()
        segment = self._create_segment(base_offset, now_ms)
        try:
            self.producers.update_map_end_offset(base_offset)
            self.producers.take_snapshot(sync=False)
        except OSError:
            segment.delete()
            raise
        self.segments.add(segment)
        self.log_end_offset = base_offset
        _log.info("%s: rolled a new segment at offset %d", self.name, base_offset)
        if self.on_roll is not None:
            self.on_roll(self)
        return segment

    def _create_segment(self, base_offset: int, now_ms: int) -> Segment:
        self._sync.names_changed = True
        return Segment.create(self.directory, base_offset, self.config, now_ms=now_ms, disk=self._disk)

    def truncate_to(self, offset: int) -> bool:
        """Cut off `offset` and all above it, because the leader's log does not have them. True if any was."""
        if offset < 0:
            raise ValueError(f"cannot truncate {self.name} to the negative offset {offset}")
        if offset >= self.log_end_offset:
            self.leader_epochs.truncate_from_end(offset)
            return False
        if offset < self.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return True
        _log.info("%s: truncating from %d to %d", self.name, self.log_end_offset, offset)
        try:
            self._sync.on_truncated(offset)
            for segment in [segment for segment in self.segments if segment.base_offset > offset]:
                self._delete_segment(segment)
            self.segments.active.truncate_to(offset, self.config, self.clock())
        except OSError as error:
            raise self.log_dir.fail(error, f"truncating {self.name}") from error
        self.leader_epochs.truncate_from_end(offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self._set_end_after_truncation(offset)
        try:
            rebuild_producer_state(self.producers, self.segments, self.log_start_offset, offset, self.clock())
        except OSError as error:  # producers would be judged by what was cut off
            raise self.log_dir.fail(error, f"reading {self.name} after it was truncated") from error
        if self.on_truncated is not None:
            self.on_truncated(offset, False)
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop every record; the next one gets `offset`."""
        _log.info("%s: truncating fully, going on at %d", self.name, offset)
        try:
            self._sync.on_truncated(offset)
            for segment in list(self.segments):
                self._delete_segment(segment)
            self.segments.add(self._create_segment(offset, self.clock()))
            self.producers.truncate_fully_and_start_at(offset)
        except OSError as error:
            raise self.log_dir.fail(error, f"truncating {self.name}") from error
        self.leader_epochs.clear()
        self.log_start_offset = offset
        self._set_end_after_truncation(offset)
        if self.on_truncated is not None:
            self.on_truncated(offset, True)

    def _set_end_after_truncation(self, offset: int) -> None:
        self.log_end_offset = offset
        self.high_watermark = max(min(self.high_watermark, offset), self.log_start_offset)

    def delete_old_segments(self, now_ms: int) -> int:
        """Apply retention by start offset, size and time. Returns the number of segments removed.

        If all segments are to go, the log is rolled first: it always keeps one, with the next offset in its name.
        """
        try:
            deletable = deletable_segments(self, now_ms)
            if not deletable:
                return 0
            if len(deletable) == len(self.segments):
                self._roll(0, now_ms)
            for segment, reason in deletable:
                _log.info("%s: deleting segment %d: %s", self.name, segment.base_offset, reason)
                self._delete_segment(segment, now_ms)
        except OSError as error:
            raise StorageError(f"Deleting segments of {self.name} failed: {error}", self.log_dir.path) from error
        self.advance_log_start(self.segments.first.base_offset)
        return len(deletable)

    def _delete_segment(self, segment: Segment, now_ms: int | None = None) -> None:
        """Out of sight at once, off the disk after file.delete.delay.ms."""
        self.segments.remove(segment)
        segment.release()
        paths = segment.rename_suffix("", ".deleted")
        snapshot = self.producers.mark_snapshot_for_deletion(segment.base_offset)
        if snapshot is not None:
            paths.append(snapshot)
        due_ms = (self.clock() if now_ms is None else now_ms) + self.config.file_delete_delay_ms
        self.deletions.add(due_ms, paths)

    # --- reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        end_offset: int,
        min_one: bool = True,
        isolation_committed: bool = False,
    ) -> LogRead:
        """See `storage.log_read.read_log`. Raises OffsetOutOfRange, StorageError."""
        try:
            return log_read.read_log(
                self.segments,
                offset,
                max_bytes,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
                end_offset=end_offset,
                min_one=min_one,
                isolation_committed=isolation_committed,
            )
        except OSError as error:
            raise self.read_failed(error) from error

    def lookup_timestamp(self, target_ms: int) -> TimestampAndOffset | None:
        """The first record at or after `target_ms`, of those from the log start offset on."""
        try:
            return log_read.lookup_timestamp(self.segments, target_ms, self.log_start_offset)
        except OSError as error:
            raise self.read_failed(error) from error

    def max_timestamp(self) -> TimestampAndOffset | None:
        """The first record with the greatest timestamp."""
        try:
            return log_read.max_timestamp(self.segments)
        except OSError as error:
            raise self.read_failed(error) from error

    def read_failed(self, error: OSError) -> StorageError:
        """A disk that cannot be read is given up, as in Kafka; a process out of descriptors has a sound disk."""
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            return StorageError(f"Reading {self.name} failed: {error}", self.log_dir.path)
        return self.log_dir.fail(error, f"reading {self.name}")

    # --- durability

    def needs_flush(self, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms ask for a flush. Then nothing is acknowledged before it is done."""
        unflushed = self.log_end_offset - self._sync.recovery_point
        if unflushed <= 0:
            return False
        return unflushed >= self.config.flush_messages or now_ms - self._last_flush_ms >= self.config.flush_ms

    async def flush(self) -> None:
        """Return when all that is in the log now is durable. StorageError: the log directory is offline.

        If another log takes this one's place meanwhile, it is durable when it is so there.
        """
        if self.successor is None:
            await self._sync.sync(lambda: self.log_end_offset)
        if self.successor is not None:
            await self.successor.flush()
        self._last_flush_ms = self.clock()

    def flush_blocking(self) -> None:
        """For tools and for the end of the process: the same, in this thread."""
        self._sync.sync_blocking(self.log_end_offset)
        self._last_flush_ms = self.clock()

    async def wait_for_flush(self) -> None:
        """Let a flush under way end, so that the files may be closed or moved."""
        await self._sync.drain()

    # --- the rest of its life

    def update_config(self, config: LogConfig) -> None:
        self.config = config
        self.rules = AppendRules(config)
        self.segments.active.resize_indexes(config)

    def move_to(self, directory: str) -> None:
        """Rename the partition's directory, as a deletion does."""
        self._disk.rename(self.directory, directory)
        self.directory = directory
        self._sync.move_to(directory)
        self.leader_epochs.update_parent_dir(directory)
        self.producers.update_parent_dir(directory)
        for segment in self.segments:
            segment.move_to(directory)

    def close(self) -> None:
        """Leave the files as a clean stop does, durably. Blocks. StorageError: the stop was not clean."""
        try:
            self.flush_blocking()
            self.producers.take_snapshot(sync=True)
            for segment in self.segments:
                segment.close()
            self.segments.active.sync_files()
            self.segments.active.file.close()
        except OSError as error:
            raise self.log_dir.fail(error, f"closing {self.name}") from error

    def release(self) -> None:
        """Let go of the files as they are: the partition is deleted, or its directory is offline."""
        for segment in self.segments:
            segment.release()
