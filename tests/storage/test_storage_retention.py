"""Retention by time, size and start offset, with a clock that moves when told to."""

from __future__ import annotations

import os
from pathlib import Path

from support.logs import NOW, Clock, append, batch, contents, log_config, open_log, timed_batch

from storage.log import Log

SIZE = len(timed_batch(NOW))


def log_of_three_segments(tmp_path: Path, clock: Clock, **settings: object) -> Log:
    """Segments 0, 2 and 4 with timestamps NOW..NOW+5, all replicated."""
    log = open_log(tmp_path, log_config(segment_bytes=2 * SIZE, file_delete_delay_ms=60, **settings), clock=clock)
    for index in range(6):
        append(log, timed_batch(NOW + index))
    log.advance_high_watermark(6)
    assert log.segments.base_offsets == [0, 2, 4]
    return log


def test_by_time(tmp_path: Path) -> None:
    log = log_of_three_segments(tmp_path, Clock(), retention_ms=100)
    assert log.delete_old_segments(NOW + 101) == 0  # the greatest timestamp of the first segment is NOW + 1
    assert log.delete_old_segments(NOW + 102) == 1
    assert (log.segments.base_offsets, log.log_start_offset) == ([2, 4], 2)


def test_when_all_is_old_the_log_rolls_and_keeps_its_offset(tmp_path: Path) -> None:
    log = log_of_three_segments(tmp_path, Clock(), retention_ms=100)
    assert log.delete_old_segments(NOW + 10_000) == 3
    assert (log.segments.base_offsets, log.log_start_offset, log.log_end_offset) == ([6], 6, 6)
    assert log.delete_old_segments(NOW + 20_000) == 0
    assert append(log, batch(b"next")).first_offset == 6
    assert contents(open_log(tmp_path, log.config)) == [(6, b"next")]


def test_by_size(tmp_path: Path) -> None:
    log = log_of_three_segments(tmp_path, Clock(), retention_ms=-1, retention_bytes=4 * SIZE + 1)
    assert log.delete_old_segments(NOW) == 0
    log.update_config(log_config(retention_ms=-1, retention_bytes=4 * SIZE, segment_bytes=2 * SIZE))
    assert log.delete_old_segments(NOW) == 1
    assert log.segments.base_offsets == [2, 4]


def test_nothing_above_the_high_watermark_goes(tmp_path: Path) -> None:
    log = open_log(tmp_path, log_config(segment_bytes=2 * SIZE, retention_ms=1))
    for index in range(6):
        append(log, timed_batch(NOW + index))
    log.advance_high_watermark(3)
    assert log.delete_old_segments(NOW + 10_000) == 1
    assert log.segments.base_offsets == [2, 4]


def test_a_compacted_log_loses_only_what_is_below_its_start(tmp_path: Path) -> None:
    log = log_of_three_segments(tmp_path, Clock(), retention_ms=1, cleanup_policy=frozenset({"compact"}))
    assert log.delete_old_segments(NOW + 10_000) == 0
    log.advance_log_start(5)
    assert log.delete_old_segments(NOW + 10_000) == 2
    assert (log.segments.base_offsets, log.log_start_offset) == ([4], 5)


def test_files_are_renamed_at_once_and_removed_later(tmp_path: Path) -> None:
    clock = Clock(NOW + 102)
    log = log_of_three_segments(tmp_path, clock, retention_ms=100)
    log.delete_old_segments(clock())

    def deleted() -> list[str]:
        return sorted(name for name in os.listdir(log.directory) if name.endswith(".deleted"))

    zero = "00000000000000000000"
    assert deleted() == [f"{zero}.index.deleted", f"{zero}.log.deleted", f"{zero}.timeindex.deleted"]
    assert log.deletions.run_due(clock() + 59) == 0
    assert log.deletions.run_due(clock() + 60) == 3
    assert deleted() == []


def test_a_restart_removes_what_was_to_be_deleted(tmp_path: Path) -> None:
    log = log_of_three_segments(tmp_path, Clock(), retention_ms=100)
    log.delete_old_segments(NOW + 102)
    log.close()
    log = open_log(tmp_path, log.config, clean=True)
    assert not [name for name in os.listdir(log.directory) if name.endswith(".deleted")]
    assert [offset for offset, _ in contents(log)] == [2, 3, 4, 5]


def test_segments_without_timestamps_go_by_the_file(tmp_path: Path) -> None:
    log = open_log(tmp_path, log_config(retention_ms=100))
    append(log, timed_batch(-1))
    log.advance_high_watermark(1)
    os.utime(log.segments.active.file.path, (NOW / 1000, NOW / 1000))
    assert log.delete_old_segments(NOW + 100) == 0
    assert log.delete_old_segments(NOW + 102) == 1
