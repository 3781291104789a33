"""Which segments a log may forget: those below its start offset, beyond its size, or past their time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.segment import Segment

if TYPE_CHECKING:
    from storage.log import Log


def deletable_segments(log: Log, now_ms: int) -> list[tuple[Segment, str]]:
    """From the oldest on, without a gap, with the reason for each.

    Only what is wholly below the high watermark goes: a follower that still needs it must find it. The active
    segment is included only if it has records and is due as well; an empty one never is.
    """
    config = log.config
    by_size = config.is_delete and config.retention_bytes >= 0
    by_time = config.is_delete and config.retention_ms >= 0
    excess = log.size_bytes - config.retention_bytes
    deletable: list[tuple[Segment, str]] = []
    segments = list(log.segments)
    for index, segment in enumerate(segments):
        is_active = index + 1 == len(segments)
        upper = log.log_end_offset if is_active else segments[index + 1].base_offset
        if upper > log.high_watermark or (is_active and segment.size == 0):
            break
        if not is_active and upper <= log.log_start_offset:
            reason = f"it is below the log start offset {log.log_start_offset}"
        elif by_size and excess - segment.size >= 0:
            reason = f"the log is {excess} bytes larger than retention.bytes, {config.retention_bytes}"
        elif by_time and now_ms - segment.largest_timestamp > config.retention_ms:
            age_ms = now_ms - segment.largest_timestamp
            reason = f"it is {age_ms} ms old, more than retention.ms, {config.retention_ms}"
        else:
            break
        excess -= segment.size
        deletable.append((segment, reason))
    return deletable
