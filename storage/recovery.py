"""Opening a partition's directory: what a stop, clean or not, has left there.

After a clean stop nothing is read but a few headers behind the last index entry. After any other stop the segments
from the recovery point on are walked: each batch is checked against its CRC and must continue the offsets of the one
before. The first that does not is where the log ends; what lies behind it was never acknowledged as durable (it is
above the recovery point) and is cut off. Indexes, producer state and leader epochs are rebuilt on the way.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from config.topic import LogConfig
from protocol.errors import DecodeError
from protocol.records import HEADER_SIZE, LOG_OVERHEAD, MAGIC, MAGIC_POSITION, BatchHeader, check_crc, read_header
from storage.checkpoints import CorruptCheckpoint
from storage.disk import Disk
from storage.errors import CorruptLog, StorageError
from storage.index import MAX_RELATIVE_OFFSET, CorruptIndex
from storage.leader_epochs import LeaderEpochCache
from storage.leftovers import clean_up_directory
from storage.producer_replay import marker_of, rebuild_producer_state, replay_batch
from storage.producer_state import ProducerStateManager
from storage.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, Segment, file_name
from storage.segments import Segments

_CHUNK = 8 * 1024 * 1024
"""Bytes read at once. Read, not mapped: a bad sector under a mapping is a SIGBUS, here it is an OSError."""

_LEGACY_CRC = Struct(">I")

_log = logging.getLogger(__name__)


class LoadedLog(NamedTuple):
    """A directory's content, ready to be a log."""

    segments: Segments
    producers: ProducerStateManager
    leader_epochs: LeaderEpochCache
    log_start_offset: int
    log_end_offset: int
    recovery_point: int


class LogLoader:
    """Loads one partition's directory. Blocking; may run in a thread, because nobody else knows the log yet."""

    def __init__(
        self,
        directory: str,
        name: str,
        config: LogConfig,
        producers: ProducerStateManager,
        *,
        disk: Disk,
        now_ms: int,
        gapless: bool = False,
    ) -> None:
        """`gapless`: no offset may be missing, so unflushed segments behind a hole are dropped.

        A power failure can take the end of a rolled segment and leave the next one. Like Kafka, an ordinary log
        keeps both: holes are legal there (compaction makes them), and consumers step over. A log that is a state
        machine's input may not have one.
        """
        self._directory = directory
        self._name = name
        self._config = config
        self._producers = producers
        self._disk = disk
        self._now_ms = now_ms
        self._gapless = gapless
        self._segments = Segments()
        self._epochs_lost = False
        try:
            self._leader_epochs = LeaderEpochCache(directory, autoflush=False, ops=disk)
        except CorruptCheckpoint as error:
            _log.warning("%s: %s; the log is walked from its start to find the epochs again", name, error)
            disk.unlink(error.path)
            self._epochs_lost = True
            self._leader_epochs = LeaderEpochCache(directory, autoflush=False, ops=disk)

    def load(self, *, log_start_offset: int, recovery_point: int, clean: bool) -> LoadedLog:
        """`log_start_offset` and `recovery_point` are from the checkpoints, 0 where they have no entry."""
        if self._epochs_lost:
            clean, recovery_point = False, 0
        self._open_segments(log_start_offset)
        segments = self._segments
        if not clean and len(segments):
            self._recover(log_start_offset, recovery_point)
        end_offset = segments.active.read_next_offset() if len(segments) else log_start_offset
        if len(segments) and end_offset < log_start_offset:
            _log.warning(
                "%s: the log ends at %d, below its start offset %d: all segments are dropped",
                self._name,
                end_offset,
                log_start_offset,
            )
            for segment in list(segments):
                self._drop(segment)
            end_offset = log_start_offset
        if not len(segments):
            segments.add(self._create(log_start_offset))
            end_offset = log_start_offset
        start_offset = max(log_start_offset, segments.first.base_offset)
        self._leader_epochs.truncate_from_end(end_offset)
        self._leader_epochs.truncate_from_start(start_offset)
        self._producers.remove_stray_snapshots(segments.base_offsets)
        rebuild_producer_state(self._producers, segments, start_offset, end_offset, self._now_ms, clean=clean)
        return LoadedLog(
            segments,
            self._producers,
            self._leader_epochs,
            start_offset,
            end_offset,
            # Read back from the page cache is not the same as durable: only a clean stop moves the point up.
            end_offset if clean else min(recovery_point, end_offset),
        )

    # --- opening

    def _open_segments(self, log_start_offset: int) -> None:
        sizes = clean_up_directory(self._directory, self._config, self._disk, self._now_ms)
        for name in sorted(sizes):
            if not name.endswith(LOG_SUFFIX):
                continue
            base_offset = int(name.removesuffix(LOG_SUFFIX))
            stem = file_name(base_offset, "")
            segment = Segment(
                self._directory, base_offset, self._config, now_ms=self._now_ms, size=sizes[name], disk=self._disk
            )
            self._segments.add(segment)
            if segment.size and (stem + INDEX_SUFFIX not in sizes or stem + TIME_INDEX_SUFFIX not in sizes):
                _log.warning("%s: an index of segment %d is missing, it is rebuilt", self._name, base_offset)
                self._rebuild_alone(segment, log_start_offset)
        if len(self._segments):
            active = self._segments.active
            try:
                active.offset_index.sanity_check()
                active.time_index.sanity_check()
                active.txn_index.sanity_check()
            except CorruptIndex as error:
                _log.warning("%s: %s; the segment's indexes are rebuilt", self._name, error)
                self._rebuild_alone(active, log_start_offset)

    def _create(self, base_offset: int) -> Segment:
        return Segment.create(self._directory, base_offset, self._config, now_ms=self._now_ms, disk=self._disk)

    def _drop(self, segment: Segment) -> None:
        self._segments.remove(segment)
        segment.delete()

    # --- recovering

    def _recover(self, log_start_offset: int, recovery_point: int) -> None:
        """Walk all segments from the one that holds the recovery point; stop at the first damage."""
        unflushed = self._segments.covering(recovery_point)
        total = sum(segment.size for segment in unflushed)
        if total:
            _log.info(
                "%s: recovering %d segments (%d bytes) from offset %d",
                self._name,
                len(unflushed),
                total,
                recovery_point,
            )
        self._load_producers_up_to(unflushed[0], log_start_offset)
        for number, segment in enumerate(unflushed, 1):
            following = unflushed[number] if number < len(unflushed) else None
            cut = self._recover_segment(segment, None if following is None else following.base_offset)
            if total:
                _log.info("%s: segment %d recovered, %d of %d", self._name, segment.base_offset, number, len(unflushed))
            later_segments = unflushed[number:]
            hole = bool(later_segments) and later_segments[0].base_offset != segment.read_next_offset()
            if cut or (hole and self._gapless):
                for later in later_segments:
                    _log.warning("%s: segment %d follows the damage and is dropped", self._name, later.base_offset)
                    self._drop(later)
                return

    def _rebuild_alone(self, segment: Segment, log_start_offset: int) -> None:
        self._load_producers_up_to(segment, log_start_offset)
        self._recover_segment(segment, None)

    def _load_producers_up_to(self, segment: Segment, log_start_offset: int) -> None:
        """The state before a segment: its markers need it, to know which transactions they end."""
        start = max(log_start_offset, self._segments.first.base_offset)
        rebuild_producer_state(self._producers, self._segments, start, max(segment.base_offset, start), self._now_ms)

    def _recover_segment(self, segment: Segment, limit: int | None) -> int:
        """Rebuild a segment's indexes from its batches; cut it at the first bad one. Bytes that were cut.

        No offset may reach `limit`, where the next segment begins: such a batch had been truncated, and the power
        failed before the truncation was durable.
        """
        before = segment.size
        segment.begin_rebuild(self._config)
        producers = self._producers
        valid = 0
        reason = "a torn batch"
        try:
            for position, header, batch in walk_checked(segment):
                if limit is not None and header.last_offset >= limit:
                    raise CorruptLog(f"offset {header.last_offset} belongs to the segment that starts at {limit}")
                segment.index_rebuilt_batch(position, header)
                if header.partition_leader_epoch >= 0:
                    self._leader_epochs.on_recovered(header.partition_leader_epoch, header.base_offset)
                aborted = replay_batch(producers, header, marker_of(header, batch))
                if aborted is not None:
                    segment.txn_index.append(aborted)
                valid = position + header.size
        except (CorruptLog, DecodeError) as error:
            reason = str(error)
        if valid < before:
            _log.warning(
                "%s: segment %d is cut from %d to %d bytes: %s",
                self._name,
                segment.base_offset,
                before,
                valid,
                reason,
            )
            segment.cut(valid)
        segment.become_inactive()
        segment.resize_indexes(self._config)
        return before - valid


def walk_checked(segment: Segment) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Every batch of a segment with its bytes, CRC checked; ends at a torn tail, raises CorruptLog at damage."""
    fd = segment.file.fileno()
    end = segment.size
    position = 0
    expected = segment.base_offset
    wanted = _CHUNK
    while position + HEADER_SIZE <= end:
        chunk = memoryview(_read(fd, min(wanted, end - position), position))
        at = 0
        wanted = _CHUNK
        while at + HEADER_SIZE <= len(chunk):
            header = read_header(chunk, at)
            size = header.size
            if chunk[at + MAGIC_POSITION] < MAGIC:
                _refuse_older_format(chunk[at : at + size], segment)
            _check_header(header, chunk[at + MAGIC_POSITION], segment, position + at, expected)
            if at + size > len(chunk):
                if position + at + size > end:
                    return  # torn: the file ends before the batch does
                wanted = max(_CHUNK, size)
                break
            batch = chunk[at : at + size]
            if not check_crc(batch, 0, header):
                raise CorruptLog(f"the batch at offset {header.base_offset} does not match its CRC")
            yield position + at, header, batch
            expected = header.next_offset
            at += size
        if at == 0 and wanted == _CHUNK:
            return
        position += at


def _check_header(header: BatchHeader, magic: int, segment: Segment, position: int, expected: int) -> None:
    if header.batch_length < HEADER_SIZE - LOG_OVERHEAD:
        raise CorruptLog(f"no batch at position {position}: length {header.batch_length}")
    if magic != MAGIC:
        raise CorruptLog(f"the batch at position {position} has the magic {magic}")
    if header.base_offset < expected or header.last_offset_delta < 0:
        raise CorruptLog(f"offset {header.base_offset} at position {position} where {expected} was expected")
    if header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
        raise CorruptLog(f"offset {header.last_offset} is too far above {segment.base_offset}")


def _refuse_older_format(entry: memoryview, segment: Segment) -> None:
    """A sound entry of magic 0 or 1 is somebody's data in a format from before 2017, not damage: never cut it."""
    if len(entry) > MAGIC_POSITION and zlib.crc32(entry[MAGIC_POSITION:]) == _LEGACY_CRC.unpack_from(entry, 12)[0]:
        raise StorageError(
            f"{segment.file.path} holds records of message format {entry[MAGIC_POSITION]}, which is not supported: "
            "let an Apache Kafka broker rewrite the topic with format 2 first",
            segment.directory,
        )


def _read(fd: int, length: int, position: int) -> bytes:
    data = os.pread(fd, length, position)
    while data and len(data) < length:
        more = os.pread(fd, length - len(data), position + len(data))
        if not more:
            break
        data += more
    return data
