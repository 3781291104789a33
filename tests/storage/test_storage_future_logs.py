"""Copies of logs on their way to another log directory: names, checkpoints, the change of places, and crashes in it."""

from __future__ import annotations

import asyncio
import errno
import os
import re
from pathlib import Path

import pytest
from support.logs import Clock, append, batch, contents, fill, log_config

from config.broker import BrokerConfig
from protocol.uuids import Uuid
from storage.disk import Disk
from storage.errors import StorageError
from storage.log import Log
from storage.log_manager import LogManager
from storage.log_names import parse_log_name
from storage.meta_properties import MetaProperties, write_meta_properties

TOPIC_ID = Uuid.random()
A, B = Uuid.random(), Uuid.random()


class RefusingDisk(Disk):
    """Renames of directories below `refused` fail."""

    __slots__ = ("refused",)

    def __init__(self) -> None:
        self.refused: Path | None = None

    def rename(self, source: str, target: str) -> None:
        if self.refused is not None and Path(source).parent == self.refused:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().rename(source, target)


def new_manager(root: Path, disk: Disk | None = None) -> LogManager:
    for name, directory_id in (("a", A), ("b", B)):
        if not (root / name).exists():
            (root / name).mkdir(parents=True)
            write_meta_properties(str(root / name), MetaProperties("c" * 22, 1, directory_id))
    settings = {"log.dirs": f"{root / 'a'},{root / 'b'}"}
    return LogManager(BrokerConfig.from_map(settings), disk=disk or Disk(), clock=Clock())


async def started(root: Path, disk: Disk | None = None, assigned: Uuid | None = None) -> LogManager:
    manager = new_manager(root, disk)
    await manager.start(lambda topic: log_config(), lambda topic, partition: assigned)
    return manager


def with_copy(manager: LogManager) -> tuple[Log, Log]:
    """A log of three batches in `a`, and its copy in `b`, which lacks the last."""
    manager.preferred["orders", 0] = manager.directories[0]
    current = manager.create("orders", 0, TOPIC_ID, log_config())
    fill(current, [b"one", b"two", b"three"])
    future = manager.create_future(current, manager.directories[1])
    copied = current.read(0, 1 << 20, end_offset=3).records
    assert copied is not None
    future.append_as_follower(memoryview(copied.read()[:-20]))
    assert (current.log_end_offset, future.log_end_offset) == (3, 2)
    return current, future


def complete(current: Log, future: Log) -> None:
    rest = current.read(future.log_end_offset, 1 << 20, end_offset=current.log_end_offset).records
    assert rest is not None
    future.append_as_follower(memoryview(rest.read()))


def names(root: Path) -> dict[str, list[str]]:
    """The directories of partitions, with unique parts left out."""
    return {
        directory: sorted(re.sub("[0-9a-f]{32}", "#", one.name) for one in (root / directory).iterdir() if one.is_dir())
        for directory in ("a", "b")
    }


def crash(manager: LogManager) -> None:
    for directory in manager.directories:
        directory.unlock()


def test_names() -> None:
    assert parse_log_name("a-b.c-7") == ("a-b.c", 7, False)
    assert parse_log_name(f"a-b.c-7.{'0f' * 16}-future") == ("a-b.c", 7, True)
    for name in (f"a-7.{'0f' * 16}-delete", f"a-7.{'0f' * 16}-stray", "a-7-future", "a", f"a.{'0f' * 16}-future"):
        assert parse_log_name(name) is None, name


async def test_a_copy_survives_a_clean_stop(tmp_path: Path) -> None:
    manager = await started(tmp_path)
    _, future = with_copy(manager)
    assert names(tmp_path) == {"a": ["orders-0"], "b": ["orders-0.#-future"]}
    assert (Path(future.directory) / "partition.metadata").read_text().endswith(str(TOPIC_ID))
    assert len(manager.logs_in(manager.directories[1])) == 1
    await manager.shutdown()
    assert (tmp_path / "b" / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 2\n"

    manager = await started(tmp_path)
    current, again = manager.get("orders", 0), manager.future("orders", 0)
    assert current is not None and again is not None
    assert (current.log_end_offset, again.log_end_offset, again.recovery_point) == (3, 2, 2)
    assert again.topic_id == TOPIC_ID and current.topic_id == TOPIC_ID
    await manager.shutdown()


async def test_the_copy_takes_the_place_of_the_log(tmp_path: Path) -> None:
    manager = await started(tmp_path)
    current, future = with_copy(manager)
    complete(current, future)
    waiting = asyncio.create_task(current.flush())
    await asyncio.sleep(0)
    manager.promote(future)
    await waiting
    assert future.recovery_point == 3  # who waits for the old log is told when the new one is durable
    assert manager.get("orders", 0) is future and manager.future("orders", 0) is None
    assert names(tmp_path) == {"a": ["orders-0.#-delete"], "b": ["orders-0"]}
    append(future, batch(b"four"))
    assert [value for _, value in contents(future)] == [b"one", b"two", b"three", b"four"]
    clock = manager.clock
    assert manager.deletions.run_due(clock() + future.config.file_delete_delay_ms) == 1
    assert names(tmp_path) == {"a": [], "b": ["orders-0"]}
    await manager.shutdown()
    assert (tmp_path / "a" / "recovery-point-offset-checkpoint").read_text() == "0\n0\n"


@pytest.mark.parametrize("refused", ["a", "b"])
async def test_a_rename_that_fails_leaves_the_log_in_use(tmp_path: Path, refused: str) -> None:
    disk = RefusingDisk()
    manager = await started(tmp_path, disk)
    current, future = with_copy(manager)
    complete(current, future)
    disk.refused = tmp_path / refused
    with pytest.raises(StorageError):
        manager.promote(future)
    assert manager.get("orders", 0) is current and Path(current.directory) == tmp_path / "a" / "orders-0"
    assert names(tmp_path) == {"a": ["orders-0"], "b": ["orders-0.#-future"]}
    assert [directory.online for directory in manager.directories] == [refused != "a", refused != "b"]
    assert [value for _, value in contents(current)] == [b"one", b"two", b"three"]
    crash(manager)


async def test_of_two_logs_in_use_the_metadata_knows_the_right_one(tmp_path: Path) -> None:
    manager = await started(tmp_path)
    current, future = with_copy(manager)
    complete(current, future)
    manager.promote(future)
    crash(manager)
    (stale,) = (tmp_path / "a").glob("orders-0.*-delete")
    stale.rename(tmp_path / "a" / "orders-0")  # the rename was not durable when the power failed

    with pytest.raises(StorageError, match="is in two log directories"):
        await started(tmp_path, assigned=Uuid.random())
    manager = await started(tmp_path, assigned=B)
    found = manager.get("orders", 0)
    assert found is not None and found.log_dir.directory_id == B
    assert names(tmp_path) == {"a": ["orders-0.#-stray"], "b": ["orders-0"]}
    await manager.shutdown()


async def test_copies_are_deleted_and_given_up(tmp_path: Path) -> None:
    manager = await started(tmp_path)
    current, future = with_copy(manager)
    with pytest.raises(ValueError):
        manager.create_future(current, manager.directories[1])
    manager.delete(future)
    assert names(tmp_path) == {"a": ["orders-0"], "b": ["orders-0.#-delete"]}
    with pytest.raises(ValueError):
        manager.create_future(current, manager.directories[0])
    again = manager.create_future(current, manager.directories[1])
    manager.directories[1].fail(OSError(errno.EIO, "dead"), "a test")
    manager.forget_future(again)
    assert list(manager) == [current]
    await manager.shutdown()


async def test_where_new_logs_go(tmp_path: Path) -> None:
    manager = await started(tmp_path)
    by_id = manager.create("orders", 1, TOPIC_ID, log_config(), B)
    assert by_id.log_dir is manager.directories[1]
    manager.preferred["orders", 2] = manager.directories[1]  # whoever asked goes before the metadata
    assert manager.create("orders", 2, TOPIC_ID, log_config(), A).log_dir is manager.directories[1]
    assert not manager.preferred
    assert manager.create("orders", 3, TOPIC_ID, log_config(), Uuid.random()).log_dir is manager.directories[0]
    manager.preferred["orders", 4] = manager.directories[1]
    manager.directories[1].fail(OSError(errno.EIO, "dead"), "a test")
    with pytest.raises(StorageError, match="offline"):
        manager.create("orders", 4, TOPIC_ID, log_config())
    await manager.shutdown()


async def test_a_leader_s_log_that_starts_inside_a_batch_can_be_followed(tmp_path: Path) -> None:
    """DeleteRecords leaves a log start in the middle of a batch; the first fetch of a new follower brings all of it."""
    manager = await started(tmp_path)
    leader = manager.create("orders", 0, TOPIC_ID, log_config(), A)
    append(leader, batch(b"0", b"1", b"2", b"3"))
    leader.advance_high_watermark(4)
    leader.advance_log_start(2)
    found = leader.read(2, 1 << 20, end_offset=4).records
    assert found is not None
    follower = manager.create("orders", 1, TOPIC_ID, log_config(), B)
    follower.truncate_fully_and_start_at(2)
    follower.append_as_follower(memoryview(found.read()))
    assert (follower.log_start_offset, follower.log_end_offset) == (0, 4)
    follower.advance_high_watermark(4)
    follower.advance_log_start(2)
    assert contents(follower) == [(2, b"2"), (3, b"3")]
    await manager.shutdown()
