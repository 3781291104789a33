"""Clean-up behind snapshots: old snapshots, and the segments of the log that only they need.

The latest snapshot always stays. The log's start is moved to the end of the oldest snapshot that is kept, so that
from each snapshot on disk the log can be followed to its end.
"""

from __future__ import annotations

import os

from controller.checkpoint import SnapshotId, last_contained_timestamp, list_snapshots
from storage.disk import Disk
from storage.log import Log


def clean_up(log: Log, directory: str, *, max_bytes: int, max_age_ms: int, now_ms: int, disk: Disk) -> list[SnapshotId]:
    """Remove the oldest snapshots while log and snapshots are larger than ``max_bytes``, or older than
    ``max_age_ms`` (negative: no limit). Returns what was removed."""
    snapshots = list_snapshots(directory)
    removed: list[SnapshotId] = []
    while len(snapshots) > 1 and (
        _is_too_large(log, directory, snapshots, max_bytes) or _is_too_old(directory, snapshots[0], max_age_ms, now_ms)
    ):
        oldest = snapshots.pop(0)
        log.advance_log_start(min(snapshots[0].end_offset, log.high_watermark))
        log.delete_old_segments(now_ms)
        disk.unlink(os.path.join(directory, oldest.file_name))
        removed.append(oldest)
    return removed


def _is_too_large(log: Log, directory: str, snapshots: list[SnapshotId], max_bytes: int) -> bool:
    if max_bytes < 0:
        return False
    sizes = (os.path.getsize(os.path.join(directory, snapshot.file_name)) for snapshot in snapshots)
    return log.size_bytes + sum(sizes) > max_bytes


def _is_too_old(directory: str, snapshot: SnapshotId, max_age_ms: int, now_ms: int) -> bool:
    """By the time of the last record in it, as Kafka judges: a copied or restored file keeps its age."""
    if max_age_ms < 0:
        return False
    timestamp = last_contained_timestamp(os.path.join(directory, snapshot.file_name))
    return timestamp is not None and now_ms - timestamp > max_age_ms
