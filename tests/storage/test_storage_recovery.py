"""What a start makes of a directory that was not left cleanly, or that was left by an interrupted operation."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from struct import pack

import pytest
from support.fake_disk import FakeDisk
from support.logs import NOW, append, batch, contents, fill, log_config, open_log, timed_batch

from protocol.records import set_base_offset, set_leader_epoch
from storage.errors import StorageError
from storage.log import Log
from storage.segment import file_name

CONFIG = log_config(segment_bytes=300, index_interval_bytes=1)


def filled(tmp_path: Path) -> Log:
    log = open_log(tmp_path, CONFIG)
    for index in range(10):
        append(log, timed_batch(NOW + index), leader_epoch=index // 4)
    return log


def index_bytes(directory: str) -> dict[str, bytes]:
    """Content of all indexes without the zeros behind their entries."""
    names = [name for name in sorted(os.listdir(directory)) if name.endswith("index")]
    return {name: Path(directory, name).read_bytes() for name in names}


def test_rebuilt_files_equal_the_lost_ones(tmp_path: Path) -> None:
    log = filled(tmp_path)
    expected, epochs = contents(log), log.leader_epochs.entries
    log.close()
    before = index_bytes(log.directory)
    assert len(before) >= 6
    for name in before:
        os.unlink(os.path.join(log.directory, name))
    os.unlink(os.path.join(log.directory, "leader-epoch-checkpoint"))
    log = open_log(tmp_path, CONFIG)
    assert contents(log) == expected and log.leader_epochs.entries == epochs
    assert index_bytes(log.directory) == before


def test_epochs_that_were_truncated_do_not_come_back(tmp_path: Path) -> None:
    """The file of epochs may be older than the log. Once a batch was given the epoch of one that had been cut off
    there, and as leader this replica told its followers to cut off what was committed."""

    def follow(log: Log, epoch: int, offsets: range) -> None:
        for offset in offsets:
            records = batch(b"%d" % offset)
            set_base_offset(records, offset)
            set_leader_epoch(records, epoch)
            log.append_as_follower(records)

    log = open_log(tmp_path)
    follow(log, 4, range(100))
    follow(log, 5, range(100, 110))  # as a leader that nobody followed
    log.close()
    log = open_log(tmp_path, clean=True, recovery_point=110)
    assert log.leader_epochs.entries == ((4, 0), (5, 100))
    log.truncate_to(100)
    follow(log, 4, range(100, 120))
    follow(log, 6, range(120, 130))
    expected = log.leader_epochs.entries
    assert expected == ((4, 0), (6, 120))
    log.release()
    log = open_log(tmp_path, clean=False, recovery_point=100)
    assert log.leader_epochs.entries == expected
    assert log.end_offset_for_epoch(4) == (4, 120)


def test_a_missing_index_is_rebuilt_even_after_a_clean_stop(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.close()
    before = index_bytes(log.directory)
    os.unlink(os.path.join(log.directory, file_name(0, ".index")))
    os.unlink(os.path.join(log.directory, file_name(0, ".timeindex")))
    log = open_log(tmp_path, CONFIG, clean=True)
    assert len(contents(log)) == 10
    assert index_bytes(log.directory) == before


def test_damage_in_an_earlier_segment_drops_the_later_ones(tmp_path: Path) -> None:
    log = filled(tmp_path)
    second = log.segments.base_offsets[1]
    path = Path(log.directory, file_name(second, ".log"))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    log = open_log(tmp_path, CONFIG)
    assert [offset for offset, _ in contents(log)] == list(range(log.log_end_offset))
    assert second < log.log_end_offset < 10
    assert log.segments.active.base_offset == second
    assert not list(Path(log.directory).glob(file_name(log.segments.base_offsets[-1] + 3, ".log")))


def test_nothing_below_the_recovery_point_is_read(tmp_path: Path) -> None:
    """That is what makes a restart fast; the damage is for the reader to find, as with Kafka."""
    log = filled(tmp_path)
    path = Path(log.directory, file_name(0, ".log"))
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)
    log = open_log(tmp_path, CONFIG, recovery_point=10)
    assert (log.log_start_offset, log.log_end_offset) == (0, 10)


@pytest.mark.parametrize("tail", [b"\0" * 200, b"\xff" * 200, b"\x01" * 61, bytes(range(100))])
def test_rubbish_at_the_end_is_cut(tmp_path: Path, tail: bytes) -> None:
    log = open_log(tmp_path)
    fill(log, [b"a", b"b"])
    path = Path(log.segments.active.file.path)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + tail)
    assert contents(open_log(tmp_path)) == [(0, b"a"), (1, b"b")]
    assert path.stat().st_size == size


def test_offsets_that_go_back_end_the_log(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [b"a", b"b"])
    path = Path(log.segments.active.file.path)
    path.write_bytes(path.read_bytes() + bytes(batch(b"again", base_offset=1)))
    assert contents(open_log(tmp_path)) == [(0, b"a"), (1, b"b")]


def test_records_of_an_older_format_are_never_cut(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    body = pack(">bbqi1si1s", 1, 0, NOW, 1, b"k", 1, b"v") + b"\0" * 40
    entry = pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body
    path = Path(log.segments.active.file.path)
    path.write_bytes(entry)
    with pytest.raises(StorageError, match="message format 1"):
        open_log(tmp_path)
    assert path.read_bytes() == entry


def test_a_damaged_epoch_file_is_found_again_in_the_log(tmp_path: Path) -> None:
    log = filled(tmp_path)
    epochs = log.leader_epochs.entries
    log.close()
    Path(log.directory, "leader-epoch-checkpoint").write_text("not a checkpoint")
    assert open_log(tmp_path, CONFIG, clean=True, recovery_point=10).leader_epochs.entries == epochs


def test_a_log_that_ends_below_its_start_begins_anew(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.close()
    log = open_log(tmp_path, CONFIG, log_start_offset=50)
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)
    assert append(log, batch(b"x")).first_offset == 50


def test_the_recovery_point_is_not_moved_by_reading(tmp_path: Path) -> None:
    """What recovery saw may be in the page cache only: a second crash must find the same starting point."""
    disk = FakeDisk(tmp_path)
    log = open_log(tmp_path, disk=disk)
    fill(log, [b"a", b"b"])
    log = open_log(tmp_path, disk=disk)  # a killed process: the page cache survives
    assert log.recovery_point == 0 and log.log_end_offset == 2
    log.flush_blocking()
    assert log.recovery_point == 2
    disk.crash()
    assert contents(open_log(tmp_path, disk=disk, recovery_point=2)) == [(0, b"a"), (1, b"b")]


def test_leftovers(tmp_path: Path) -> None:
    """Deleted and half-cleaned files go, a finished swap is completed, an index without its log goes."""
    log = open_log(tmp_path, CONFIG)
    for index in range(10):
        append(log, timed_batch(NOW + index))
    log.close()
    directory = Path(log.directory)
    first, second, third = log.segments.base_offsets[:3]
    merged = b"".join((directory / file_name(base, ".log")).read_bytes() for base in (first, second))
    (directory / (file_name(first, ".log") + ".swap")).write_bytes(merged)
    (directory / (file_name(third, ".log") + ".cleaned")).write_bytes(b"half")
    (directory / (file_name(99, ".log") + ".deleted")).write_bytes(b"gone")
    (directory / file_name(77, ".index")).write_bytes(b"")
    log = open_log(tmp_path, CONFIG, clean=True)
    assert log.segments.base_offsets[:2] == [first, third]
    assert [offset for offset, _ in contents(log)] == list(range(10))
    names = os.listdir(directory)
    assert not [name for name in names if name.endswith((".swap", ".cleaned", ".deleted")) or "77" in name]


def test_a_swap_that_was_a_split_is_undone(tmp_path: Path) -> None:
    log = open_log(tmp_path, CONFIG)
    fill(log, [b"a", b"b"])
    log.close()
    directory = Path(log.directory)
    (directory / (file_name(0, ".log") + ".swap")).write_bytes(b"")
    (directory / (file_name(0, ".log") + ".cleaned")).write_bytes(b"")
    assert contents(open_log(tmp_path, CONFIG, clean=True)) == [(0, b"a"), (1, b"b")]
    assert not list(directory.glob("*.swap"))


def test_a_batch_larger_than_a_chunk_of_the_walk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.recovery._CHUNK", 150)
    log = open_log(tmp_path)
    values = [b"x" * size for size in (10, 400, 20, 80, 149, 150, 151, 1)]
    fill(log, values)
    assert [value for _, value in contents(open_log(tmp_path))] == values


@pytest.mark.parametrize("gapless", [False, True])
def test_a_hole_between_segments(tmp_path: Path, gapless: bool) -> None:
    """Power failed between a roll and its flush: the end of the first file is lost, the second file is there."""
    disk = FakeDisk(tmp_path)
    log = open_log(tmp_path, disk=disk)
    append(log, batch(b"durable"))
    log.flush_blocking()
    append(log, batch(b"lost"))
    log.roll()
    append(log, batch(b"there"))
    disk.fdatasync(log.segments.active.file.fileno())
    disk.crash()
    log = open_log(tmp_path, disk=disk, recovery_point=1, gapless=gapless)
    assert contents(log) == ([(0, b"durable")] if gapless else [(0, b"durable"), (2, b"there")])
    assert append(log, batch(b"next")).first_offset == (1 if gapless else 3)


def test_a_truncation_that_was_lost_and_a_roll_that_was_not(tmp_path: Path) -> None:
    """The old batches are back in the first file, and overlap the segment that was rolled after them."""
    disk = FakeDisk(tmp_path)
    log = open_log(tmp_path, disk=disk)
    append(log, batch(b"a"))
    append(log, batch(b"b", b"c", b"d"))
    log.flush_blocking()
    log.truncate_to(1)
    append(log, batch(b"new"))
    log.roll()
    disk.crash()
    log = open_log(tmp_path, disk=disk, recovery_point=1)
    assert contents(log) == [(0, b"a")]
    assert append(log, batch(b"next")).first_offset == 1


def test_a_flush_makes_a_truncation_durable(tmp_path: Path) -> None:
    disk = FakeDisk(tmp_path)
    log = open_log(tmp_path, disk=disk)
    fill(log, [b"a", b"b"])
    log.flush_blocking()
    log.truncate_to(1)
    log.flush_blocking()
    disk.crash()
    assert contents(open_log(tmp_path, disk=disk, recovery_point=1)) == [(0, b"a")]
