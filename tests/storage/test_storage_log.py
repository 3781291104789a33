"""Rolling, reading, looking up times, truncating: the everyday life of one log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.logs import NOW, Clock, append, batch, contents, fill, log_config, open_log, timed_batch

from storage.errors import OffsetOutOfRange


def bases(log: object) -> list[int]:
    return log.segments.base_offsets  # type: ignore[attr-defined, no-any-return]


def test_files_have_kafkas_names(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [b"a", b"b"])
    log.roll()
    append(log, batch(b"c"))
    log.close()
    assert sorted(os.listdir(log.directory)) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000002.index",
        "00000000000000000002.log",
        "00000000000000000002.snapshot",
        "00000000000000000002.timeindex",
        "00000000000000000003.snapshot",
        "leader-epoch-checkpoint",
    ]


def test_roll_by_size(tmp_path: Path) -> None:
    size = len(batch(b"x"))
    log = open_log(tmp_path, log_config(segment_bytes=3 * size))
    fill(log, [b"x"] * 7)
    assert bases(log) == [0, 3, 6]


def test_roll_by_time_goes_by_the_first_batchs_timestamp(tmp_path: Path) -> None:
    log = open_log(tmp_path, log_config(segment_ms=100, segment_jitter_ms=0))
    append(log, timed_batch(NOW))
    append(log, timed_batch(NOW + 100))
    assert bases(log) == [0]
    append(log, timed_batch(NOW + 101))
    assert bases(log) == [0, 2]
    log.close()
    log = open_log(tmp_path, log_config(segment_ms=100, segment_jitter_ms=0), clean=True, recovery_point=3)
    append(log, timed_batch(NOW + 300))
    assert bases(log) == [0, 2, 3]


def test_roll_by_time_without_timestamps_goes_by_the_clock(tmp_path: Path) -> None:
    log = open_log(tmp_path, log_config(segment_ms=100, segment_jitter_ms=0))
    append(log, timed_batch(-1))
    append(log, timed_batch(-1), now_ms=NOW + 100)
    append(log, timed_batch(-1), now_ms=NOW + 101)
    assert bases(log) == [0, 2]


def test_roll_when_an_index_is_full(tmp_path: Path) -> None:
    log = open_log(tmp_path, log_config(segment_index_bytes=36, index_interval_bytes=0))
    for index in range(10):
        append(log, timed_batch(NOW + index))
    assert len(bases(log)) > 1
    assert len(contents(log)) == 10


def test_an_index_that_fills_up_within_one_append(tmp_path: Path) -> None:
    """A follower appends many batches at once; the ones that no entry is left for are found by walking."""
    config = log_config(segment_index_bytes=36, index_interval_bytes=0)
    log = open_log(tmp_path, config)
    data = b"".join(bytes(batch(b"%d" % at, base_offset=at, leader_epoch=0)) for at in range(30))
    log.append_as_follower(memoryview(data))
    expected = [(at, b"%d" % at) for at in range(30)]
    assert contents(log) == expected
    append(log, batch(b"30"))
    assert bases(log) == [0, 30]
    assert contents(open_log(tmp_path, config)) == [*expected, (30, b"30")]


def test_roll_when_offsets_leave_the_range_of_the_index(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(b"a"))
    far = 0x7FFFFFFF + 1
    log.append_as_follower(batch(b"b", base_offset=far, leader_epoch=0))
    assert bases(log) == [0, far]
    assert contents(log) == [(0, b"a"), (far, b"b")]


def test_an_index_entry_names_the_last_offset_of_its_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path, log_config(index_interval_bytes=1))
    for index in range(3):
        append(log, timed_batch(NOW + index, NOW + index))
    size = len(timed_batch(NOW, NOW))
    index = log.segments.active.offset_index
    assert [index.entry(slot) for slot in range(index.entries)] == [(3, size), (5, 2 * size)]
    times = log.segments.active.time_index
    assert [times.entry(slot) for slot in range(times.entries)] == [(NOW + 1, 3), (NOW + 2, 5)]


def test_a_read_in_the_middle_of_a_batch_returns_the_whole_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(b"a", b"b", b"c"))
    whole = log.read(0, 1 << 20, end_offset=3).records
    middle = log.read(2, 1 << 20, end_offset=3).records
    assert whole is not None and middle is not None
    assert (middle.position, len(middle)) == (whole.position, len(whole))
    assert middle.read() == whole.read()


def test_a_read_stops_at_the_end_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path, log_config(segment_bytes=300))
    fill(log, [b"x" * 20] * 9)
    size = len(batch(b"x" * 20))
    for end in range(10):
        for offset in range(10):
            found = log.read(offset, 1 << 20, end_offset=end).records
            if offset >= end:
                assert found is None
            else:
                segment = log.segments.floor(offset)
                assert segment is not None
                following = log.segments.after(segment)
                last = min(end, following.base_offset if following else 9)
                assert found is not None and len(found) == (last - offset) * size


def test_a_slice_outlives_its_segment(tmp_path: Path) -> None:
    clock = Clock()
    log = open_log(tmp_path, log_config(retention_ms=1000), clock=clock)
    append(log, batch(b"old"))
    log.advance_high_watermark(1)
    found = log.read(0, 1 << 20, end_offset=1).records
    assert found is not None
    expected = found.read()
    assert log.delete_old_segments(NOW + 5000) == 1
    assert log.deletions.run_due(NOW + 5000 + log.config.file_delete_delay_ms) == 3
    assert not os.path.exists(found.file.path)
    assert found.read() == expected


def test_times(tmp_path: Path) -> None:
    """A look-up gives the first record, not the first batch, at or after a time, across segments."""
    log = open_log(tmp_path, log_config(segment_bytes=250, index_interval_bytes=1))
    stamps = [10, 20, 15, 40, 35, 60, 50, 60, 55, 5]
    for at in range(0, len(stamps), 2):
        append(log, timed_batch(*stamps[at : at + 2]), leader_epoch=at)
    assert len(bases(log)) > 1
    for target in range(70):
        expected = next(((stamp, at) for at, stamp in enumerate(stamps) if stamp >= target), None)
        found = log.lookup_timestamp(target)
        assert (found and (found.timestamp, found.offset)) == expected, target
    assert log.lookup_timestamp(60) == (60, 5, 4)
    assert log.max_timestamp() == (60, 5, 4)
    log.advance_high_watermark(10)
    log.advance_log_start(6)
    assert log.lookup_timestamp(0) == (50, 6, 6)


def test_times_of_a_log_without_any(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.max_timestamp() is None and log.lookup_timestamp(0) is None
    append(log, timed_batch(-1))
    assert log.max_timestamp() is None and log.lookup_timestamp(0) is None


def test_truncation_takes_everything_with_it(tmp_path: Path) -> None:
    log = open_log(tmp_path, log_config(segment_bytes=200, index_interval_bytes=1))
    for sequence in range(8):
        append(
            log,
            batch(b"v" * 20, producer_id=1, producer_epoch=0, base_sequence=sequence, timestamp=NOW + sequence),
            leader_epoch=sequence // 3,
        )
    log.advance_high_watermark(8)
    assert log.truncate_to(8) is False
    assert log.truncate_to(4) is True
    assert (log.log_end_offset, log.high_watermark) == (4, 4)
    assert log.leader_epochs.entries == ((0, 0), (1, 3))
    assert log.end_offset_for_epoch(1) == (1, 4)
    assert log.max_timestamp() == (NOW + 3, 3, 1)
    assert log.producers.active_producers()[0].last_sequence == 3
    append(log, batch(b"new", producer_id=1, producer_epoch=0, base_sequence=4, timestamp=NOW + 1))
    assert [offset for offset, _ in contents(log)] == [0, 1, 2, 3, 4]
    assert contents(open_log(tmp_path, log.config)) == contents(log)
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (100, 100, 100)
    assert append(log, batch(b"x")).first_offset == 100
    assert contents(open_log(tmp_path, log.config)) == [(100, b"x")]


def test_delete_records(tmp_path: Path) -> None:
    log = open_log(tmp_path, log_config(segment_bytes=200))
    fill(log, [b"v" * 20] * 6)
    log.advance_high_watermark(5)
    with pytest.raises(OffsetOutOfRange):
        log.advance_log_start(6)
    assert log.advance_log_start(3) is True
    assert log.advance_log_start(2) is False
    with pytest.raises(OffsetOutOfRange):
        log.read(2, 100, end_offset=6)
    assert [offset for offset, _ in contents(log)] == [3, 4, 5]
    assert log.delete_old_segments(NOW) == 1
    assert log.segments.first.base_offset == 2 and log.log_start_offset == 3


def test_the_high_watermark_never_falls(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [b"a", b"b"])
    assert log.advance_high_watermark(1) is True
    assert log.advance_high_watermark(0) is False
    assert log.advance_high_watermark(99) is True
    assert log.high_watermark == 2


def test_preallocated_segments_end_where_their_records_do(tmp_path: Path) -> None:
    config = log_config(preallocate=True, segment_bytes=4096)
    log = open_log(tmp_path, config)
    fill(log, [b"a", b"b"])
    path = Path(log.segments.active.file.path)
    assert path.stat().st_size == 4096
    assert contents(open_log(tmp_path, config)) == [(0, b"a"), (1, b"b")]
    log = open_log(tmp_path, config)
    log.roll()
    assert path.stat().st_size == log.segments.first.size
    fill(log, [b"c"])
    log.close()
    assert contents(open_log(tmp_path, config, clean=True)) == [(0, b"a"), (1, b"b"), (2, b"c")]
