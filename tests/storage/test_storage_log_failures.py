"""Disks that are full, that fail, that lose power: what is acknowledged is there, what is not there is refused."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from pathlib import Path

import pytest
from support.fake_disk import FakeDisk
from support.logs import NOW, append, batch, contents, fill, log_config, open_log

from storage.errors import CorruptLog, StorageError


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("cutting_fails", [False, True])
def test_a_write_that_fails_leaves_no_trace(tmp_path: Path, code: int, cutting_fails: bool) -> None:
    disk = FakeDisk(tmp_path)
    log = open_log(tmp_path, disk=disk)
    fill(log, [b"one", b"two"])
    disk.fail_next_write, disk.fail_truncate = code, cutting_fails
    with pytest.raises(StorageError):
        append(log, batch(b"lost" * 20, producer_id=1, producer_epoch=0, base_sequence=0))
    disk.fail_truncate = False
    assert contents(log) == [(0, b"one"), (1, b"two")]
    assert log.log_dir.online and log.producers.is_empty
    append(log, batch(b"three"))
    assert contents(log) == [(0, b"one"), (1, b"two"), (2, b"three")]
    assert contents(open_log(tmp_path)) == [(0, b"one"), (1, b"two"), (2, b"three")]


@pytest.mark.parametrize("restart", ["clean", "crash"])
def test_a_full_disk_refuses_writes_and_goes_on_reading(tmp_path: Path, restart: str) -> None:
    """Also at a roll, where files have to be created: none of them may be left over."""
    disk = FakeDisk(tmp_path)
    config = log_config(segment_bytes=250, index_interval_bytes=1)
    log = open_log(tmp_path, config, disk=disk)
    fill(log, [b"%d" % index * 20 for index in range(10)])
    expected = contents(log)
    disk.full = True
    for _ in range(6):
        with pytest.raises(StorageError):
            append(log, batch(b"lost" * 10))
        assert contents(log) == expected
    disk.full = False
    append(log, batch(b"space again"))
    expected.append((10, b"space again"))
    assert contents(log) == expected
    if restart == "clean":
        log.close()
        log = open_log(tmp_path, config, disk=disk, clean=True, recovery_point=11)
    else:
        log.flush_blocking()
        disk.crash()
        log = open_log(tmp_path, config, disk=disk, recovery_point=11)
    assert contents(log) == expected


async def test_a_failed_fsync_takes_the_directory_offline(tmp_path: Path) -> None:
    disk = FakeDisk(tmp_path)
    log = open_log(tmp_path, log_config(flush_messages=1), disk=disk)
    failed: list[object] = []
    log.log_dir.on_failure = failed.append
    append(log, batch(b"stored"))
    assert log.needs_flush(NOW)
    await log.flush()
    assert log.recovery_point == 1 and not log.needs_flush(NOW)
    append(log, batch(b"not stored"))
    disk.fail_next_fsync = errno.EIO
    with pytest.raises(StorageError):
        await log.flush()
    assert failed == [log.log_dir] and not log.log_dir.online
    assert log.recovery_point == 1
    with pytest.raises(StorageError):  # asking the kernel again would prove nothing
        await log.flush()
    with pytest.raises(StorageError):
        append(log, batch(b"refused"))
    disk.crash()
    assert contents(open_log(tmp_path, disk=disk, recovery_point=1)) == [(0, b"stored")]


async def test_one_sync_serves_all_who_wait(tmp_path: Path) -> None:
    disk = FakeDisk(tmp_path)
    log = open_log(tmp_path, disk=disk)
    append(log, batch(b"first"))
    await log.flush()
    disk.syncs = 0
    append(log, batch(b"a"))
    waiters = [asyncio.create_task(log.flush()) for _ in range(10)]
    await asyncio.sleep(0)  # all are waiting; the sync under way does not cover what comes now
    append(log, batch(b"b"))
    late = [asyncio.create_task(log.flush()) for _ in range(10)]
    await asyncio.gather(*waiters, *late)
    assert log.recovery_point == 3
    assert disk.syncs == 2


async def test_whoever_comes_in_the_moment_a_sync_ends_gets_the_next_one(tmp_path: Path) -> None:
    """A task that is done has not yet told so: whoever then waited for it once more got no turn of the loop, so it
    never did, and the node stood still. The fault test found it, with `flush.messages` set and many producers."""

    def stood_still(*_: object) -> None:
        raise AssertionError("the loop does not get its turn")

    log = open_log(tmp_path, disk=FakeDisk(tmp_path))
    append(log, batch(b"a"))
    first = asyncio.create_task(log.flush())
    while (running := log._sync._running) is None or not running.done():  # noqa: ASYNC110 - every turn counts
        await asyncio.sleep(0)
    append(log, batch(b"b"))
    before = signal.signal(signal.SIGALRM, stood_still)
    signal.alarm(10)
    try:
        await log.flush()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    await first
    assert log.recovery_point == 2


async def test_a_truncation_during_a_sync_is_not_called_durable(tmp_path: Path) -> None:
    disk = FakeDisk(tmp_path)
    log = open_log(tmp_path, disk=disk)
    fill(log, [b"a", b"b", b"c"])
    flush = asyncio.create_task(log.flush())
    await asyncio.sleep(0)
    log.truncate_to(1)
    append(log, batch(b"d"))
    assert log.recovery_point <= 1
    await flush
    assert log.recovery_point == 2
    assert log.log_end_offset == 2


def test_a_truncation_on_a_full_disk_is_whole(tmp_path: Path) -> None:
    """It frees nothing if it is short, and there is no room for the snapshot that is written then. Once the records
    were gone and the log ended where they had been: whoever followed the leader could not go on."""
    disk = FakeDisk(tmp_path)
    log = open_log(tmp_path, disk=disk)
    for sequence in range(10):
        append(log, batch(b"v", producer_id=7, producer_epoch=0, base_sequence=sequence), leader_epoch=4)
    disk.full = True
    assert log.truncate_to(6)
    assert log.log_dir.online
    assert log.log_end_offset == log.segments.active.read_next_offset() == log.producers.map_end_offset == 6
    disk.full = False
    append(log, batch(b"next", producer_id=7, producer_epoch=0, base_sequence=6), leader_epoch=5)
    assert [value for _, value in contents(log)] == [b"v"] * 6 + [b"next"]


def test_a_truncated_log_that_cannot_be_read_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its producers would be judged by records that are gone."""
    log = open_log(tmp_path)
    fill(log, [b"a", b"b"])

    def failing(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("storage.log.rebuild_producer_state", failing)
    with pytest.raises(StorageError):
        log.truncate_to(1)
    assert not log.log_dir.online
    assert log.log_end_offset == 1


@pytest.mark.parametrize(("code", "online"), [(errno.EIO, False), (errno.EMFILE, True)])
def test_a_read_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, online: bool) -> None:
    log = open_log(tmp_path)
    append(log, batch(b"a"))

    def failing(fd: int, length: int, position: int) -> bytes:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("storage.segment.os.pread", failing)
    with pytest.raises(StorageError):
        log.read(0, 100, end_offset=1)
    assert log.log_dir.online is online


def test_a_header_that_was_damaged_under_a_running_broker(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, [b"a", b"b"])
    path = Path(log.segments.active.file.path)
    data = bytearray(path.read_bytes())
    data[8:12] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    with pytest.raises(CorruptLog):
        log.read(1, 100, end_offset=2)
    assert append(log, batch(b"c")).first_offset == 2
