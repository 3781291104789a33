"""The log manager: several directories, checkpoints, clean and unclean stops, deletions, offline directories."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.fake_disk import FakeDisk
from support.logs import Clock, append, batch, contents, fill, log_config

from config.broker import BrokerConfig
from config.topic import LogConfig
from protocol.uuids import Uuid
from storage.disk import DISK, Disk
from storage.errors import StorageError
from storage.log_manager import LogManager
from storage.log_names import DELETE_SUFFIX, set_aside_name

TOPIC_ID = Uuid.random()


def broker_config(*directories: Path, **settings: str) -> BrokerConfig:
    values = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "controller.quorum.voters": "1@localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "log.dirs": ",".join(map(str, directories)),
    }
    return BrokerConfig.from_map(values | {name.replace("_", "."): value for name, value in settings.items()})


async def start(
    *directories: Path, disk: Disk = DISK, config: LogConfig | None = None, clock: Callable[[], int] | None = None
) -> LogManager:
    manager = LogManager(broker_config(*directories), disk=disk, clock=clock or Clock())
    await manager.start(lambda topic: config or log_config())
    return manager


def listing(directory: Path) -> set[str]:
    return {name for name in os.listdir(directory) if not name.startswith(".")}


async def test_new_logs_go_where_the_fewest_are(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    manager = await start(a, b)
    for partition in range(6):
        log = manager.create("orders", partition, TOPIC_ID, log_config())
        assert manager.get("orders", partition) is log
    assert [len(manager.logs_in(directory)) for directory in manager.directories] == [3, 3]
    assert (a / "orders-0" / "partition.metadata").read_text() == f"version: 0\ntopic_id: {TOPIC_ID}"
    with pytest.raises(ValueError):
        manager.create("orders", 0, TOPIC_ID, log_config())
    await manager.shutdown()


async def test_a_clean_stop_and_start(tmp_path: Path) -> None:
    manager = await start(tmp_path)
    log = manager.create("orders", 0, TOPIC_ID, log_config())
    fill(log, [b"a", b"b", b"c"])
    log.advance_high_watermark(2)
    log.advance_log_start(1)
    await manager.shutdown(broker_epoch=17)
    assert json.loads((tmp_path / ".kafka_cleanshutdown").read_text()) == {"version": 0, "brokerEpoch": 17}
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 3\n"
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 1\n"
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n1\norders 0 2\n"

    manager = await start(tmp_path)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    found = manager.get("orders", 0)
    assert found is not None and found.topic_id == TOPIC_ID
    assert (found.log_start_offset, found.high_watermark, found.log_end_offset) == (1, 2, 3)
    assert found.recovery_point == 3
    assert contents(found) == [(1, b"b"), (2, b"c")]
    await manager.shutdown()


def previous_epoch(*directories: Path) -> int:
    manager = LogManager(broker_config(*directories))
    manager.open_directories()
    try:
        return manager.read_previous_broker_epoch()
    finally:
        for directory in manager.directories:
            directory.unlock()


async def test_a_stop_was_clean_if_it_was_so_in_every_directory(tmp_path: Path) -> None:
    """The controller lets a broker that stopped cleanly lead what it was eligible for. With one directory of two
    closed properly, it once said so for both: the other had lost the tail of its logs, and was elected."""
    a, b, c, broken = tmp_path / "a", tmp_path / "b", tmp_path / "c", tmp_path / "broken"
    manager = await start(a, b)
    assert previous_epoch(c) == -1, "new"
    await manager.shutdown(broker_epoch=17)
    assert previous_epoch(a, b) == previous_epoch(b, a) == 17
    assert previous_epoch(a, b, c) == -1, "one was never stopped"
    manager = await start(b)
    await manager.shutdown(broker_epoch=18)
    assert previous_epoch(a, b) == -1, "from different runs"
    assert previous_epoch(b) == 18
    broken.write_text("a file where a directory should be")
    assert previous_epoch(b, broken) == -1, "one cannot be used"


async def test_an_unclean_stop_is_recovered_from_the_checkpoint(tmp_path: Path) -> None:
    disk = FakeDisk(tmp_path)
    manager = await start(tmp_path, disk=disk)
    log = manager.create("orders", 0, TOPIC_ID, log_config())
    fill(log, [b"a", b"b"])
    await log.flush()
    append(log, batch(b"unsynced"))
    for directory in manager.directories:
        directory.write_checkpoint(directory.recovery_points, manager.recovery_points(directory))
        directory.unlock()
    disk.crash(surviving=30)
    after = await start(tmp_path, disk=disk)
    found = after.get("orders", 0)
    assert found is not None and contents(found) == [(0, b"a"), (1, b"b")]
    await after.shutdown()


async def test_two_brokers_cannot_share_a_directory(tmp_path: Path) -> None:
    manager = await start(tmp_path)
    with pytest.raises(StorageError, match="used by another broker"):
        await start(tmp_path)
    await manager.shutdown()
    again = await start(tmp_path)
    await again.shutdown()


async def test_the_same_directory_twice(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a")
    with pytest.raises(StorageError, match="twice"):
        await start(tmp_path / "a", tmp_path / "link")


async def test_deleting_renames_at_once_and_removes_later(tmp_path: Path) -> None:
    clock = Clock()
    manager = await start(tmp_path, clock=clock)
    config = log_config(file_delete_delay_ms=1000)
    log = manager.create("orders", 0, TOPIC_ID, config)
    append(log, batch(b"a"))
    found = log.read(0, 100, end_offset=1).records
    assert found is not None
    manager.delete(log)
    assert manager.get("orders", 0) is None
    (name,) = [name for name in listing(tmp_path) if name.endswith("-delete")]
    assert name.startswith("orders-0.") and len(name) == len("orders-0.") + 32 + len("-delete")
    assert found.read()  # a response under way
    again = manager.create("orders", 0, TOPIC_ID, config)
    assert again.log_end_offset == 0
    assert manager.deletions.run_due(clock() + 999) == 0
    assert manager.deletions.run_due(clock() + 1000) == 1
    assert not [name for name in listing(tmp_path) if name.endswith("-delete")]
    await manager.shutdown()


async def test_a_deletion_is_finished_after_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    manager = await start(tmp_path, clock=clock)
    manager.delete(manager.create("orders", 0, TOPIC_ID, log_config()))
    await manager.shutdown()
    manager = await start(tmp_path, clock=clock)
    assert list(manager) == []
    assert manager.deletions.run_due(clock() + manager.config.log_segment_delete_delay_ms) == 1
    assert not [name for name in listing(tmp_path) if name.startswith("orders")]
    await manager.shutdown()


def test_names_of_deleted_directories_fit_a_file_system() -> None:
    name = set_aside_name("t" * 249, 12345, DELETE_SUFFIX)
    assert len(name) == 255 and name.startswith("t" * 200) and "-12345." in name


async def test_what_is_not_a_partition_is_left_alone(tmp_path: Path) -> None:
    for name in ("__cluster_metadata-0", "lost+found", "notes", f"orders-0.{'a' * 32}-stray"):
        (tmp_path / name).mkdir()
    manager = await start(tmp_path)
    assert list(manager) == []
    await manager.shutdown()
    assert {"__cluster_metadata-0", "lost+found", "notes"} <= listing(tmp_path)


async def test_a_directory_that_fails_takes_only_its_own_logs(tmp_path: Path) -> None:
    disk = FakeDisk(tmp_path)
    manager = await start(tmp_path / "a", tmp_path / "b", disk=disk)
    failed = asyncio.Event()
    manager.on_directory_failure = lambda directory: failed.set()
    bad, good = (manager.create("orders", partition, TOPIC_ID, log_config()) for partition in range(2))
    assert bad.log_dir is not good.log_dir
    append(bad, batch(b"lost"))
    disk.fail_next_fsync = errno.EIO
    with pytest.raises(StorageError):
        await bad.flush()
    await asyncio.wait_for(failed.wait(), 5)
    with pytest.raises(StorageError):
        append(bad, batch(b"refused"))
    append(good, batch(b"kept"))
    await good.flush()
    assert manager.create("orders", 2, TOPIC_ID, log_config()).log_dir is good.log_dir
    await manager.shutdown()
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()
    assert previous_epoch(tmp_path / "a", tmp_path / "b") == -1


async def test_a_full_disk_at_shutdown_is_not_a_clean_stop(tmp_path: Path) -> None:
    disk = FakeDisk(tmp_path)
    manager = await start(tmp_path, disk=disk)
    log = manager.create("orders", 0, TOPIC_ID, log_config())
    append(log, batch(b"a"))
    disk.full = True
    await manager.shutdown()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    disk.full = False
    manager = await start(tmp_path, disk=disk)
    found = manager.get("orders", 0)
    assert found is not None and contents(found) == [(0, b"a")]
    await manager.shutdown()


async def test_rolled_segments_are_flushed_in_the_background(tmp_path: Path) -> None:
    manager = await start(tmp_path)
    log = manager.create("orders", 0, TOPIC_ID, log_config())
    fill(log, [b"a", b"b"])
    log.roll()
    await asyncio.sleep(0)
    await log.wait_for_flush()
    assert log.recovery_point == 2
    await manager.shutdown()


async def test_a_corrupt_topic_id_is_assigned_again(tmp_path: Path) -> None:
    manager = await start(tmp_path)
    manager.create("orders", 0, TOPIC_ID, log_config())
    await manager.shutdown()
    (tmp_path / "orders-0" / "partition.metadata").write_text("")
    manager = await start(tmp_path)
    log: Any = manager.get("orders", 0)
    assert log.topic_id == Uuid.ZERO
    manager.assign_topic_id(log, TOPIC_ID)
    await manager.shutdown()
    manager = await start(tmp_path)
    log = manager.get("orders", 0)
    assert log.topic_id == TOPIC_ID
    await manager.shutdown()


async def test_retention_runs_over_all_logs_even_if_one_fails(tmp_path: Path) -> None:
    clock = Clock()
    manager = await start(tmp_path, clock=clock)
    for partition in range(3):
        log = manager.create("orders", partition, TOPIC_ID, log_config(retention_ms=10))
        append(log, batch(b"old"))
        log.advance_high_watermark(1)
    assert manager.apply_retention(clock() + 5) == 0
    assert manager.apply_retention(clock() + 11) == 3
    await manager.shutdown()
