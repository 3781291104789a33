"""One segment of a log: a `.log` file and its three indexes.

The end of the segment is `size`, a number in memory, and not the length of the file: a write that failed half-way
may leave bytes behind it, and nobody reads past `size`. Appends are positional writes at `size`, so that the next
one overwrites such a remainder even if cutting it off failed as well.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple, Self

from config.topic import LogConfig
from protocol.errors import DecodeError
from protocol.records import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, Record, iter_records, read_header
from storage.disk import DISK, Buffer, Disk
from storage.errors import CorruptLog
from storage.file_slice import FileSlice, LogFile
from storage.index import MAX_RELATIVE_OFFSET, OffsetIndex
from storage.results import TimestampAndOffset
from storage.time_index import TimeIndex, TimestampOffset
from storage.txn_index import TransactionIndex

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
DELETED_SUFFIX = ".deleted"
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

_log = logging.getLogger(__name__)

# Of a batch header, what finding an offset needs: base offset, batch length, last offset delta.
_OFFSETS = Struct(">qi11xi")
_SMALL_BATCH = 1024  # below it, reading several headers with one pread is cheaper than one pread for each
_WINDOW = 4096  # the default index.interval.bytes: as far as a walk from an index entry usually goes


class BatchPosition(NamedTuple):
    """Where a batch lies in its segment."""

    position: int
    size: int
    base_offset: int
    last_offset: int


def file_name(base_offset: int, suffix: str) -> str:
    """Kafka's: the offset of the first record in 20 digits, so that names sort as offsets do."""
    return f"{base_offset:020d}{suffix}"


class Segment:
    """See the module's docstring. One owner, the log; no locks."""

    __slots__ = (
        "_bytes_since_index",
        "_disk",
        "_first_timestamp",
        "_index_interval",
        "_jitter_ms",
        "_max_timestamp",
        "_preallocated",
        "base_offset",
        "created_ms",
        "directory",
        "file",
        "offset_index",
        "size",
        "time_index",
        "txn_index",
    )

    def __init__(
        self,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        now_ms: int,
        size: int | None = None,
        create: bool = False,
        disk: Disk = DISK,
    ) -> None:
        """Open an existing segment of `size` bytes (asked of the file if None), or create an empty one."""
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = now_ms
        self._disk = disk
        self._preallocated = False
        path = os.path.join(directory, file_name(base_offset, ""))
        self.file = LogFile(path + LOG_SUFFIX, disk)
        if create:
            self.file.create()
            self._preallocated = config.preallocate
            if config.preallocate:
                disk.fallocate(self.file.fileno(), 0, config.segment_bytes)
            size = 0
        elif size is None:
            size = os.stat(self.file.path).st_size
        self.size: int = size
        index_bytes = config.segment_index_bytes
        self.offset_index = OffsetIndex(path + INDEX_SUFFIX, base_offset, index_bytes, ops=disk)
        self.time_index = TimeIndex(path + TIME_INDEX_SUFFIX, base_offset, index_bytes, ops=disk)
        self.txn_index = TransactionIndex(path + TXN_INDEX_SUFFIX, base_offset, ops=disk)
        self._index_interval = config.index_interval_bytes
        self._bytes_since_index = 0
        self._first_timestamp: int | None = None
        self._max_timestamp: TimestampOffset | None = None
        jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
        self._jitter_ms = random.randrange(jitter_ms) if jitter_ms > 0 else 0

    @classmethod
    def create(cls, directory: str, base_offset: int, config: LogConfig, *, now_ms: int, disk: Disk = DISK) -> Self:
        """A new, empty segment. If the disk is full no file of it is left: an empty segment with an offset that
        records go past would hide them.
        """
        try:
            return cls(directory, base_offset, config, now_ms=now_ms, create=True, disk=disk)
        except OSError:
            for suffix in SUFFIXES:
                with contextlib.suppress(OSError):
                    disk.unlink(os.path.join(directory, file_name(base_offset, suffix)))
            raise

    def __repr__(self) -> str:
        return f"Segment(base_offset={self.base_offset}, size={self.size}, directory={self.directory!r})"

    # --- appending

    def append(self, data: Buffer, batches: Iterable[BatchHeader], batch_count: int = 1) -> None:
        """Write `data`, the bytes of `batches` with their final offsets. OSError: nothing was appended.

        Disk space for index entries is reserved before the write, so that no step after it can fail.
        """
        position = self.size
        if self._bytes_since_index + len(data) > self._index_interval:
            self.offset_index.reserve(batch_count)
            self.time_index.reserve(batch_count + 1)  # one more for the entry that closes the segment
        try:
            self._disk.pwrite(self.file.fileno(), data, position)
        except OSError:
            # Best effort: whatever stays behind `size` is overwritten by the next append or cut by recovery.
            with contextlib.suppress(OSError):
                self._disk.truncate(self.file.fileno(), position)
                self._preallocated = False
            raise
        self.size = position + len(data)
        greatest = self._max_timestamp or self.max_timestamp
        pending = self._bytes_since_index
        for header in batches:
            last_offset = header.base_offset + header.last_offset_delta
            if header.max_timestamp > greatest.timestamp:
                greatest = self._max_timestamp = TimestampOffset(header.max_timestamp, last_offset)
            if pending > self._index_interval and self._index(last_offset, position, greatest):
                pending = 0
            batch_size = header.batch_length + LOG_OVERHEAD
            position += batch_size
            pending += batch_size
        self._bytes_since_index = pending

    def _index(self, last_offset: int, position: int, greatest: TimestampOffset) -> bool:
        """Add an entry to both indexes, False if one is full: in the middle of an append of several batches, or in
        a segment from before `segment.index.bytes` was lowered. Without it a reader walks a little further.
        """
        if self.offset_index.is_full or self.time_index.is_full:
            return False
        self.offset_index.append(last_offset, position)
        self.time_index.maybe_append(greatest.timestamp, greatest.offset)
        return True

    def should_roll(self, config: LogConfig, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether an append of `size` bytes up to `last_offset` belongs into a new segment."""
        if self.size > config.segment_bytes - size:
            return True
        if self.size > 0 and self._time_waited(max_timestamp, now_ms) > config.segment_ms - self._jitter_ms:
            return True
        return (
            self.offset_index.is_full or self.time_index.is_full or last_offset - self.base_offset > MAX_RELATIVE_OFFSET
        )

    def _time_waited(self, max_timestamp: int, now_ms: int) -> int:
        """Age by record time if the first batch has one, by the clock otherwise. The former survives restarts."""
        first = self._first_timestamp
        if first is None:
            first = self._first_timestamp = self._read_first_timestamp()
        return max_timestamp - first if first >= 0 else now_ms - self.created_ms

    def _read_first_timestamp(self) -> int:
        if self.size < HEADER_SIZE:
            return -1
        return read_header(os.pread(self.file.fileno(), HEADER_SIZE, 0)).max_timestamp

    def become_inactive(self) -> None:
        """The log rolled: record the greatest timestamp and give back the space behind the indexes' ends."""
        self._close_time_index()
        self.offset_index.trim()
        self.time_index.trim()
        self._release_preallocated()

    def _close_time_index(self) -> None:
        greatest = self.max_timestamp
        if greatest.timestamp >= 0:
            self.time_index.maybe_append(greatest.timestamp, greatest.offset, skip_full=True)

    def _release_preallocated(self) -> None:
        if self._preallocated:
            self._disk.truncate(self.file.fileno(), self.size)
            self._preallocated = False

    # --- walking headers

    def find(self, offset: int, position: int = 0) -> BatchPosition | None:
        """The first batch from `position` on whose last offset is `offset` or above."""
        size = self.size
        fd = self.file.fileno()
        window = b""
        window_start = position
        reach = HEADER_SIZE
        while position + HEADER_SIZE <= size:
            at = position - window_start
            if at < 0 or at + _OFFSETS.size > len(window):
                window = os.pread(fd, min(reach, size - position), position)
                window_start, at = position, 0
                if len(window) < _OFFSETS.size:
                    raise CorruptLog(f"{self.file.path} is shorter than its {size} bytes")
            base_offset, batch_length, last_delta = _OFFSETS.unpack_from(window, at)
            batch_size = batch_length + LOG_OVERHEAD
            if batch_size < HEADER_SIZE or last_delta < 0:
                raise CorruptLog(f"{self.file.path} has no batch at position {position}")
            if base_offset + last_delta >= offset:
                return BatchPosition(position, batch_size, base_offset, base_offset + last_delta)
            position += batch_size
            reach = _WINDOW if batch_size < _SMALL_BATCH else HEADER_SIZE
        return None

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """All whole batches from `position` on, by their headers alone."""
        fd = self.file.fileno()
        window = b""
        window_start = position
        reach = HEADER_SIZE
        while position + HEADER_SIZE <= self.size:
            at = position - window_start
            if at < 0 or at + HEADER_SIZE > len(window):
                window = os.pread(fd, min(reach, self.size - position), position)
                window_start, at = position, 0
                if len(window) < HEADER_SIZE:
                    raise CorruptLog(f"{self.file.path} is shorter than its {self.size} bytes")
            header = read_header(window, at)
            batch_size = header.batch_length + LOG_OVERHEAD
            if batch_size < HEADER_SIZE:
                raise CorruptLog(f"{self.file.path} has no batch at position {position}")
            if position + batch_size > self.size:
                return
            yield position, header
            position += batch_size
            reach = _WINDOW * 16 if batch_size < _SMALL_BATCH else HEADER_SIZE

    def batch_bytes(self, position: int, size: int) -> bytes:
        return FileSlice(self.file, position, size).read()

    def translate(self, offset: int) -> BatchPosition | None:
        """The batch that holds `offset`, or the first one behind a gap; None if the segment ends before it."""
        return self.find(offset, self.offset_index.lookup(offset).position)

    def read_next_offset(self) -> int:
        """The offset after the last record: from the last index entry on, so it costs a few headers at most."""
        next_offset = self.base_offset
        for _, header in self.headers(self.offset_index.lookup(self.offset_index.last_offset).position):
            next_offset = header.base_offset + header.last_offset_delta + 1
        return next_offset

    # --- times

    @property
    def max_timestamp(self) -> TimestampOffset:
        """Greatest record timestamp and the last offset of its batch; timestamp -1 if no record has one.

        After a clean stop the time index ends with it, and recovery rebuilds that entry: so it is never scanned
        for.
        """
        if self._max_timestamp is None:
            self._max_timestamp = self.time_index.last_entry
        return self._max_timestamp

    @property
    def largest_timestamp(self) -> int:
        """What retention by time goes by: of the records, or of the file if the records have none."""
        timestamp = self.max_timestamp.timestamp
        return timestamp if timestamp >= 0 else int(os.stat(self.file.path).st_mtime * 1000)

    def find_by_timestamp(self, target_ms: int, start_offset: int) -> TimestampAndOffset | None:
        """The first record at or after `target_ms` with an offset of at least `start_offset`."""
        offset = max(self.time_index.lookup(target_ms).offset, start_offset)
        for position, header in self.headers(self.offset_index.lookup(offset).position):
            if header.max_timestamp < target_ms or header.last_offset < start_offset:
                continue
            for record in self._readable_records(position, header):
                if record.timestamp >= target_ms and record.offset >= start_offset:
                    return TimestampAndOffset(record.timestamp, record.offset, header.partition_leader_epoch)
        return None

    def _readable_records(self, position: int, header: BatchHeader) -> Iterator[Record]:
        """The records of a batch, as far as they can be read: its producer may have written nonsense."""
        try:
            yield from iter_records(self.batch_bytes(position, header.size))
        except DecodeError as error:
            _log.warning("%s: the records of the batch at offset %d: %s", self, header.base_offset, error)

    def find_max_timestamp(self) -> TimestampAndOffset | None:
        """The first record with the greatest timestamp of this segment."""
        greatest = self.max_timestamp
        if greatest.timestamp < 0:
            return None
        found = self.translate(greatest.offset)
        for position, header in self.headers(found.position if found else 0):
            if header.max_timestamp == greatest.timestamp:
                for record in self._readable_records(position, header):
                    if record.timestamp == greatest.timestamp:
                        return TimestampAndOffset(record.timestamp, record.offset, header.partition_leader_epoch)
        return None

    # --- truncation and the files

    def truncate_to(self, offset: int, config: LogConfig, now_ms: int) -> int:
        """Cut off the batch that holds `offset` and all behind it. Returns the number of bytes removed."""
        found = self.translate(offset)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        self.resize_indexes(config)
        removed = 0
        if found is not None:
            removed = self.size - found.position
            self.cut(found.position)
        if self.size == 0:
            self.created_ms = now_ms
            self._first_timestamp = None
        self._bytes_since_index = 0
        self._max_timestamp = self._read_largest_timestamp()
        return removed

    def cut(self, size: int) -> None:
        """Make the file end at `size`, in memory and on disk."""
        self._disk.truncate(self.file.fileno(), size)
        self._preallocated = False
        self.size = size

    def _read_largest_timestamp(self) -> TimestampOffset:
        """The time index's last entry, or a later one among the batches behind it."""
        greatest = self.time_index.last_entry
        for _, header in self.headers(self.offset_index.lookup(greatest.offset).position):
            if header.max_timestamp > greatest.timestamp:
                greatest = TimestampOffset(header.max_timestamp, header.last_offset)
        return greatest

    def begin_rebuild(self, config: LogConfig) -> None:
        """Empty the indexes; `index_rebuilt_batch` is then called for each batch of the segment in order."""
        self.offset_index.reset()
        self.time_index.reset()
        self.txn_index.reset()
        self.resize_indexes(config)
        self._max_timestamp = self.time_index.last_entry
        self._first_timestamp = None
        self._bytes_since_index = 0

    def index_rebuilt_batch(self, position: int, header: BatchHeader) -> None:
        """The index entries that an append of this batch at `position` would have made."""
        greatest = self.max_timestamp
        if header.max_timestamp > greatest.timestamp:
            greatest = self._max_timestamp = TimestampOffset(header.max_timestamp, header.last_offset)
        if self._bytes_since_index > self._index_interval and self._index(header.last_offset, position, greatest):
            self._bytes_since_index = 0
        self._bytes_since_index += header.size

    def resize_indexes(self, config: LogConfig) -> None:
        self._index_interval = config.index_interval_bytes
        self.offset_index.resize(config.segment_index_bytes)
        self.time_index.resize(config.segment_index_bytes)

    def rename_suffix(self, old: str, new: str) -> list[str]:
        """Rename all files of the segment; readers that hold the file go on. Returns the new paths."""
        paths: list[str] = []
        stem = os.path.join(self.directory, file_name(self.base_offset, ""))
        for suffix in SUFFIXES:
            source, target = stem + suffix + old, stem + suffix + new
            with contextlib.suppress(FileNotFoundError):
                self._disk.rename(source, target)
                paths.append(target)
        self.file.path = stem + LOG_SUFFIX + new
        self.offset_index.path = stem + INDEX_SUFFIX + new
        self.time_index.path = stem + TIME_INDEX_SUFFIX + new
        self.txn_index.path = stem + TXN_INDEX_SUFFIX + new
        return paths

    def move_to(self, directory: str) -> None:
        """The partition's directory was renamed."""
        self.directory = directory
        self.file.path = os.path.join(directory, os.path.basename(self.file.path))
        self.offset_index.update_parent_dir(directory)
        self.time_index.update_parent_dir(directory)
        self.txn_index.update_parent_dir(directory)

    def sync_files(self) -> None:
        """Make an inactive segment durable with its indexes. Runs in a thread: touches descriptors only."""
        self._disk.fdatasync(self.file.fileno())
        self.offset_index.flush()
        self.time_index.flush()
        self.txn_index.flush()

    def delete(self) -> None:
        """Remove the files now: nobody reads them, the log is being opened or was never seen."""
        self.release()
        stem = os.path.join(self.directory, file_name(self.base_offset, ""))
        for suffix in SUFFIXES:
            with contextlib.suppress(FileNotFoundError):
                self._disk.unlink(stem + suffix)

    def close(self) -> None:
        """Leave the files as a clean stop leaves them: closing entry written, no reserved tails."""
        self._close_time_index()
        self.offset_index.close()
        self.time_index.close()
        self.txn_index.close()
        if self.file.is_open and os.fstat(self.file.fileno()).st_size != self.size:
            self._disk.truncate(self.file.fileno(), self.size)
        self.file.close()

    def release(self) -> None:
        """Let go of the files without touching them: the directory failed, or the partition is being deleted."""
        self.offset_index.release()
        self.time_index.release()
        self.txn_index.close()
