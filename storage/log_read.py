"""Finding bytes in a log: by offset for a fetch, by time for ListOffsets.

A read never touches records. It finds the position of a batch through the offset index and the few headers behind
its entry, and answers with a range of the file.
"""

from __future__ import annotations

from storage.errors import OffsetOutOfRange
from storage.file_slice import FileSlice
from storage.index import OffsetPosition
from storage.results import LogRead, TimestampAndOffset
from storage.segment import Segment
from storage.segments import Segments
from storage.txn_index import AbortedTxn


def read_log(
    segments: Segments,
    offset: int,
    max_bytes: int,
    *,
    log_start_offset: int,
    log_end_offset: int,
    end_offset: int,
    min_one: bool,
    isolation_committed: bool,
) -> LogRead:
    """From the batch that holds `offset` to at most `max_bytes` and never beyond `end_offset`.

    `end_offset` is the high watermark or the last stable offset, both of which lie between batches. The start is
    moved back to the beginning of its batch; the end may cut a batch, which clients ignore and fetch again. With
    `min_one` the first batch is returned however large it is, or a consumer could never get past it.
    """
    segment = segments.floor(offset)
    if offset < log_start_offset or offset > log_end_offset or segment is None:
        raise OffsetOutOfRange(offset, log_start_offset, log_end_offset)
    found = None
    if offset < end_offset:
        found = segment.translate(offset)
        while found is None:  # compaction may leave a gap at the end of a segment
            following = segments.after(segment)
            if following is None:
                break
            segment = following
            found = segment.translate(offset)
    if found is None or found.base_offset >= end_offset:
        return LogRead(None, offset, log_start_offset, [] if isolation_committed else None)
    length = _end_position(segment, segments, end_offset, log_end_offset) - found.position
    if length > max_bytes:
        if max_bytes < found.size:
            length = found.size if min_one else 0
        else:
            length = max_bytes
    if length <= 0:
        return LogRead(None, offset, log_start_offset, [] if isolation_committed else None)
    aborted = None
    if isolation_committed:
        aborted = _aborted(segments, segment, offset, found.position, length, log_end_offset)
    return LogRead(FileSlice(segment.file, found.position, length), offset, log_start_offset, aborted)


def _end_position(segment: Segment, segments: Segments, end_offset: int, log_end_offset: int) -> int:
    if end_offset >= log_end_offset:
        return segment.size
    if segment is not segments.active:
        following = segments.after(segment)
        if following is not None and end_offset >= following.base_offset:
            return segment.size
    end = segment.translate(end_offset)
    return segment.size if end is None else end.position


def _aborted(
    segments: Segments, segment: Segment, offset: int, position: int, length: int, log_end_offset: int
) -> list[AbortedTxn]:
    """Aborted transactions that overlap the range read. Some more do no harm: the client looks at offsets."""
    following = segments.after(segment)
    bound = segment.offset_index.fetch_upper_bound_offset(OffsetPosition(offset, position), length)
    if bound is not None:
        upper = bound.offset
    else:
        upper = following.base_offset if following is not None else log_end_offset
    aborted: list[AbortedTxn] = []
    current: Segment | None = segment
    while current is not None:
        result = current.txn_index.collect(offset, upper)
        aborted += result.aborted
        if result.is_complete:
            break
        current = segments.after(current)
    return aborted


def lookup_timestamp(segments: Segments, target_ms: int, log_start_offset: int) -> TimestampAndOffset | None:
    """The first record at or after `target_ms`, None if there is none."""
    for segment in segments:
        if segment.size and segment.largest_timestamp >= target_ms:
            found = segment.find_by_timestamp(target_ms, log_start_offset)
            if found is not None:
                return found
    return None


def max_timestamp(segments: Segments) -> TimestampAndOffset | None:
    """The record with the greatest timestamp of the log, the earliest of them if several share it."""
    best: Segment | None = None
    for segment in segments:
        if segment.max_timestamp.timestamp >= 0 and (
            best is None or segment.max_timestamp.timestamp > best.max_timestamp.timestamp
        ):
            best = segment
    return None if best is None else best.find_max_timestamp()
