"""A partition with followers: what is committed when, who is told, and what a change of leadership does."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path
from typing import Any

import pytest
from support.fake_disk import FakeDisk
from support.logs import log_config
from support.network import until
from support.wire import batch

from broker.partition import Partition
from broker.replication.cluster import ClusterView
from broker.replication.leader import IsrChange, IsrResult
from controller.image import PartitionImage
from protocol.errors import ApiError, ErrorCode
from protocol.uuids import Uuid
from storage.disk import DISK, Disk
from storage.log import Log

NODE = 1
EPOCHS = {1: 11, 2: 12, 3: 13}


class Controller:
    """Notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[IsrChange] = []

    def submit(self, partition: Partition, change: IsrChange) -> None:
        self.asked.append(change)


class Waiter:
    def __init__(self) -> None:
        self.told: list[str] = []

    def on_append(self, partition: Partition, size: int) -> None:
        self.told.append("append")

    def on_progress(self, partition: Partition) -> None:
        self.told.append("progress")

    def on_gone(self, partition: Partition) -> None:
        self.told.append("gone")


class SlowDisk(FakeDisk):
    """Syncs of data end when they are told to."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.may_end = threading.Event()

    def fdatasync(self, fd: int) -> None:
        assert self.may_end.wait(10)
        super().fdatasync(fd)


class Bench:
    def __init__(self, directory: Path, *, disk: Disk = DISK, **settings: Any) -> None:
        self.now = 0
        self.controller = Controller()
        cluster = ClusterView(1_000, self.controller, lambda: EPOCHS[NODE], lambda: self.now)
        cluster.eligible = dict(EPOCHS)
        log = Log.open(str(directory / "t-0"), "t", 0, log_config(**settings), disk=disk)
        self.partition = Partition("t", 0, Uuid.random(), NODE, log, cluster)
        self.image = PartitionImage(replicas=(1, 2, 3), isr=(1, 2, 3), leader=NODE, leader_epoch=4, partition_epoch=0)
        self.consumer, self.follower = Waiter(), Waiter()
        self.partition.waiters.add(self.consumer)
        self.partition.replica_waiters.add(self.follower)

    def lead(self, **fields: Any) -> None:
        self.image = self.image._replace(partition_epoch=self.image.partition_epoch + 1, **fields)
        self.partition.on_image(self.image)

    def append(self, acks: int = -1) -> int:
        return self.partition.append(memoryview(batch(b"v")), 0, acks=acks).last_offset + 1

    def fetched(self, replica: int, offset: int) -> None:
        self.partition.on_replica_fetch(replica, EPOCHS[replica], offset, 0)

    def when_committed(self, end_offset: int) -> list[ErrorCode]:
        told: list[ErrorCode] = []
        self.partition.when_committed(end_offset, told.append)
        return told


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, min_insync_replicas=2)


def test_a_record_is_committed_when_all_in_sync_replicas_have_it(bench: Bench) -> None:
    bench.lead()
    end = bench.append()
    told = bench.when_committed(end)
    assert bench.partition.log.high_watermark == 0
    assert bench.follower.told == ["append"]
    assert bench.consumer.told == []
    bench.fetched(2, end)
    assert told == []
    bench.fetched(3, end)
    assert told == [ErrorCode.NONE]
    assert bench.partition.log.high_watermark == end
    assert bench.consumer.told == ["progress"]
    assert bench.when_committed(end) == [ErrorCode.NONE]  # at once


def test_the_only_replica_commits_at_once(bench: Bench) -> None:
    bench.lead(replicas=(1,), isr=(1,))
    assert bench.partition.commits_at_once
    assert bench.partition.leadership is None
    assert bench.append() == bench.partition.log.high_watermark  # min.insync.replicas is 2, but there is no second
    assert bench.consumer.told == ["append"]


@pytest.mark.parametrize("replicas", [(1,), (1, 2, 3)])
async def test_what_must_be_synced_is_shown_once_it_is(tmp_path: Path, replicas: tuple[int, ...]) -> None:
    """`flush.messages`: a consumer once read what a power failure could take back."""
    disk = SlowDisk(tmp_path)
    bench = Bench(tmp_path, disk=disk, flush_messages=1)
    bench.lead(replicas=replicas, isr=replicas)
    end = bench.append()
    told = bench.when_committed(end)
    for follower in replicas[1:]:
        bench.fetched(follower, end)
    await asyncio.sleep(0.02)
    assert bench.partition.log.high_watermark == 0 and not told and not bench.consumer.told
    second = bench.append()  # while the sync of the first is under way
    disk.may_end.set()
    await until(lambda: bench.partition.log.high_watermark == end or len(replicas) == 1, "the first is committed")
    for follower in replicas[1:]:
        bench.fetched(follower, second)
    await until(lambda: bench.partition.log.high_watermark == second, "both are committed")
    assert told == [ErrorCode.NONE] and "progress" in bench.consumer.told
    assert bench.partition.log.recovery_point == second


async def test_what_cannot_be_synced_is_not_shown(tmp_path: Path) -> None:
    disk = FakeDisk(tmp_path)
    bench = Bench(tmp_path, disk=disk, flush_messages=1)
    bench.lead(replicas=(1,), isr=(1,))
    disk.fail_next_fsync = errno.EIO
    bench.append()
    await until(lambda: not bench.partition.log.log_dir.online, "the sync fails")
    await asyncio.sleep(0.02)
    assert bench.partition.log.high_watermark == 0 and not bench.consumer.told


def test_a_lonely_leader_of_three_replicas_does_not_commit_at_once(bench: Bench) -> None:
    bench.lead(isr=(1,))
    assert not bench.partition.commits_at_once


def test_too_few_replicas_before(bench: Bench) -> None:
    bench.lead(isr=(1,))
    with pytest.raises(ApiError) as refused:
        bench.append()
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert refused.value.message == (
        "The size of the current ISR : 1 is insufficient to satisfy the min.isr requirement of 2 for partition t-0, "
        "live replica(s) broker.id are : 1"
    )
    assert bench.partition.log.log_end_offset == 0
    bench.append(acks=1)
    assert bench.partition.log.high_watermark == 0  # KIP-966: not committed before there are enough


def test_too_few_replicas_after(bench: Bench) -> None:
    """Committed, but by fewer than demanded: the topic's setting was raised in between."""
    bench.lead(isr=(1, 2))
    end = bench.append()
    told = bench.when_committed(end)
    bench.fetched(2, end)
    assert told == [ErrorCode.NONE]
    bench.partition.log.update_config(log_config(min_insync_replicas=3))
    assert bench.when_committed(end) == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]


def test_losing_leadership_ends_all_waiting(bench: Bench) -> None:
    bench.lead()
    told = bench.when_committed(bench.append())
    bench.consumer.told.clear()
    bench.follower.told.clear()
    bench.lead(leader=2, leader_epoch=5)
    assert told == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert bench.consumer.told == bench.follower.told == ["gone"]
    assert bench.when_committed(1) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    with pytest.raises(ApiError) as refused:
        bench.append()
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(ApiError) as unknown:
        bench.fetched(2, 1)
    assert unknown.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_follower_catches_up_and_joins(bench: Bench) -> None:
    bench.lead(isr=(1, 2))
    end = bench.append()
    bench.fetched(2, end)
    assert bench.partition.log.high_watermark == end
    bench.fetched(3, end)
    (change,) = bench.controller.asked
    assert change.broker_ids == (1, 2, 3)
    assert bench.partition.awaits(change)
    later = bench.append()
    bench.fetched(2, later)
    assert bench.partition.log.high_watermark == end  # broker 3 may be in the ISR already
    bench.partition.on_isr_result(change, IsrResult(4, 9, (1, 2, 3)))
    bench.fetched(3, later)
    assert bench.partition.log.high_watermark == later


def test_a_lagging_follower_leaves(bench: Bench) -> None:
    bench.lead()
    end = bench.append()
    told = bench.when_committed(end)
    bench.fetched(2, end)
    bench.partition.maybe_shrink_isr()
    assert bench.controller.asked == []
    bench.now = 1_001
    bench.partition.maybe_shrink_isr()
    (change,) = bench.controller.asked
    assert change.broker_ids == (1, 2)
    assert told == []
    bench.partition.on_isr_result(change, IsrResult(4, 9, (1, 2)))
    assert told == [ErrorCode.NONE]


def test_a_refused_change_is_forgotten(bench: Bench) -> None:
    bench.lead(isr=(1, 2))
    bench.fetched(3, 0)
    (change,) = bench.controller.asked
    bench.partition.on_isr_refused(change)
    assert not bench.partition.awaits(change)
    bench.fetched(3, 0)
    assert len(bench.controller.asked) == 2


def test_a_new_leader_waits_for_its_followers_before_it_calls_its_log_committed(bench: Bench) -> None:
    bench.lead()
    end = bench.append()
    bench.lead(leader=2, leader_epoch=5)
    bench.lead(leader=1, leader_epoch=6)
    assert bench.partition.epoch_start_offset == end
    assert bench.partition.log.high_watermark == 0
    assert bench.partition.log.leader_epochs.latest_epoch == 6
    bench.fetched(2, end)
    bench.fetched(3, end)
    assert bench.partition.log.high_watermark == end


def test_a_reassignment_to_one_replica_commits_what_waits(bench: Bench) -> None:
    bench.lead()
    told = bench.when_committed(bench.append())
    bench.lead(replicas=(1,), isr=(1,))
    assert told == [ErrorCode.NONE]


def test_deleted_records_are_gone_when_all_replicas_have_forgotten_them(bench: Bench) -> None:
    bench.lead()
    end = bench.append()
    for replica in (2, 3):
        bench.fetched(replica, end)
    bench.partition.log.advance_log_start(end)
    told: list[ErrorCode] = []
    bench.partition.when_deleted(end, told.append)
    assert (told, bench.partition.low_watermark) == ([], 0)
    bench.partition.on_replica_fetch(2, EPOCHS[2], end, end)
    assert told == []
    bench.partition.on_replica_fetch(3, EPOCHS[3], end, end)
    assert told == [ErrorCode.NONE]
    assert bench.partition.low_watermark == end
