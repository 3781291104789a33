"""Replicas that move between log directories: the decisions, and the mover on real logs with a controller of ours."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from support.fake_disk import FakeDisk
from support.logs import NOW, batch, contents, log_config
from support.metadata import image_of
from support.network import until

from broker.partition import Partition
from broker.replicas import ReplicaManager
from broker.replication.move import (
    PATIENT_FLUSHES,
    Ask,
    ChangePlaces,
    Copy,
    Cut,
    Flush,
    LogEnds,
    LogHistory,
    MovePhase,
    ReplicaMove,
    Restart,
    common_end,
    is_level,
)
from config.broker import BrokerConfig
from controller.image import ImageDelta, MetadataImage
from protocol.errors import ApiError, ErrorCode
from protocol.metadata.partition_record import PartitionRecord
from protocol.metadata.topic_record import TopicRecord
from protocol.uuids import Uuid
from storage.disk import DISK, Disk
from storage.errors import StorageError
from storage.log_manager import LogManager
from storage.meta_properties import MetaProperties, write_meta_properties

TOPIC_ID = Uuid(b"t" * 16)
A, B, C = Uuid(b"a" * 16), Uuid(b"b" * 16), Uuid(b"c" * 16)
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


# --- decisions


def test_a_move_from_its_beginning_to_its_end() -> None:
    move = ReplicaMove()
    assert move.next_step(LogEnds(5, 9, 0), LogEnds(0, 0, 0)) == Restart(5)
    assert move.next_step(LogEnds(5, 9, 0), LogEnds(5, 5, 0)) == Copy(5)
    assert move.next_step(LogEnds(5, 7, 0), LogEnds(5, 9, 0)) == Cut(7)
    assert not move.may_be_assigned
    assert move.next_step(LogEnds(5, 7, 6), LogEnds(5, 7, 5)) == Ask()
    assert move.may_be_assigned
    assert move.next_step(LogEnds(5, 8, 6), LogEnds(5, 7, 5)) is None
    move.on_assigned()
    assert move.next_step(LogEnds(5, 8, 6), LogEnds(5, 7, 5)) == Copy(7)
    for _ in range(PATIENT_FLUSHES):
        assert move.next_step(LogEnds(5, 8, 8), LogEnds(5, 8, 7)) == Flush(now=False)
    assert move.next_step(LogEnds(5, 8, 8), LogEnds(5, 8, 7)) == Flush(now=True)
    assert move.next_step(LogEnds(5, 8, 8), LogEnds(5, 8, 8)) == ChangePlaces()


def test_a_move_that_failed_does_nothing() -> None:
    move = ReplicaMove(is_assigned=True)
    move.fail()
    move.on_assigned()
    assert move.phase is MovePhase.FAILED and not move.may_be_assigned
    assert move.next_step(LogEnds(0, 5, 0), LogEnds(0, 0, 0)) is None


@pytest.mark.parametrize(
    ("current", "future", "end"),
    [
        (LogHistory([(0, 0)], 10), LogHistory([(0, 0)], 4), 4),
        (LogHistory([(0, 0)], 4), LogHistory([(0, 0)], 10), 4),
        (LogHistory([(0, 0), (3, 6)], 10), LogHistory([(0, 0), (2, 5)], 8), 5),
        (LogHistory([(0, 0), (2, 5), (3, 6)], 10), LogHistory([(0, 0), (2, 5)], 8), 6),
        (LogHistory([(4, 0)], 10), LogHistory([(2, 0)], 8), None),
        (LogHistory([], 0), LogHistory([(2, 0)], 8), None),
        (LogHistory([(2, 0), (5, 8)], 8), LogHistory([(2, 0)], 8), 8),  # an epoch in which nothing was written
    ],
)
def test_how_far_two_logs_agree(current: LogHistory, future: LogHistory, end: int | None) -> None:
    assert common_end(current, future) == end


def test_which_of_two_logs_lacks_nothing() -> None:
    assert is_level(LogHistory([(1, 0)], 5), LogHistory([(1, 0)], 5))
    assert is_level(LogHistory([(1, 0)], 9), LogHistory([(1, 0), (2, 4)], 5))
    assert not is_level(LogHistory([(1, 0)], 6), LogHistory([(1, 0)], 5))
    assert not is_level(LogHistory([(1, 0)], 1), LogHistory([], 0))


# --- the mover


class Node:
    """A broker's partitions with directories a, b and c, alone in its cluster, and what it tells the controller."""

    def __init__(self, root: Path, *, disk: Disk = DISK, directory: Uuid = A, **settings: str) -> None:
        self.root = root
        self.told: list[tuple[int, Uuid]] = []
        self.answers = True
        paths = [root / name for name in "abc"]
        for path, directory_id in zip(paths, (A, B, C), strict=True):
            if not path.exists():
                path.mkdir(parents=True)
                write_meta_properties(str(path), MetaProperties("c" * 22, 1, directory_id))
        self.config = BrokerConfig.from_map(
            {
                "log.dirs": ",".join(map(str, paths)),
                "replica.fetch.backoff.ms": "5",
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self.logs = LogManager(self.config, disk=disk)
        self.replicas = ReplicaManager(self.config, 1, self.logs, None, self._assign)
        self.logs.on_directory_failure = self.replicas.on_directory_failure
        self.image = self.with_partitions(1, directory)

    def with_partitions(self, count: int, directory: Uuid) -> MetadataImage:
        partition = {"replicas": [1], "isr": [1], "leader": 1, "leader_epoch": 4, "partition_epoch": 0}
        records = [
            PartitionRecord(partition_id=index, topic_id=TOPIC_ID, directories=[directory], **partition)
            for index in range(count)
        ]
        elsewhere = PartitionRecord(
            partition_id=9,
            topic_id=TOPIC_ID,
            directories=[C],
            **{**partition, "replicas": [2], "isr": [2], "leader": 2},
        )
        return image_of([TopicRecord(name="t", topic_id=TOPIC_ID), *records, elsewhere])

    async def start(self, image: MetadataImage | None = None) -> Node:
        self.image = image or self.image
        named = self.image.topics_by_name["t"].partitions[0].directory_of(1)
        await self.logs.start(lambda topic: log_config(), lambda topic, partition: named)
        self.replicas.load(self.image)
        self.told.clear()
        return self

    def _assign(self, replica: tuple[Uuid, int], directory_id: Uuid) -> None:
        assert replica[0] == TOPIC_ID
        self.told.append((replica[1], directory_id))
        if self.answers:
            self.replicas.mover.on_assigned(replica, directory_id)

    def partition(self, index: int = 0) -> Partition:
        return self.replicas.partition("t", index)

    def append(self, count: int = 1, size: int = 10, index: int = 0) -> None:
        for _ in range(count):
            self.partition(index).append(batch(random.randbytes(size)), NOW, acks=1)

    def move(self, to: str, index: int = 0) -> None:
        self.replicas.alter_log_dir("t", index, str(self.root / to))

    def is_in(self, name: str, index: int = 0) -> Callable[[], bool]:
        return lambda: self.partition(index).log.log_dir.path == str(self.root / name)

    def files(self, name: str) -> list[str]:
        kinds = [path.name for path in (self.root / name).iterdir() if path.name.startswith("t-")]
        return sorted(kind[:3] + kind[kind.rfind("-") :] if "." in kind else kind for kind in kinds)

    async def stop(self) -> None:
        await self.replicas.stop()
        await self.logs.shutdown()

    async def crash(self) -> None:
        """The process is gone; the page cache is not."""
        await self.replicas.stop()
        for directory in self.logs.directories:
            directory.unlock()


def raw(partition: Partition) -> bytes:
    """The bytes of all segments."""
    return b"".join(Path(segment.file.path).read_bytes()[: segment.size] for segment in partition.log.segments)


async def test_a_replica_moves(tmp_path: Path) -> None:
    node = await Node(tmp_path).start()
    node.append(40, size=50_000)
    partition = node.partition()
    old, before = partition.log, raw(partition)
    old.advance_log_start(3)
    behind = len(before) // 40 * 3  # what is below the log start is not copied
    node.move("b")
    assert node.files("b") == ["t-0-future"]
    await until(node.is_in("b"), "the replica in b")
    assert node.told == [(0, B)]
    assert raw(partition) == before[behind:]
    assert (partition.log.log_start_offset, partition.log.high_watermark, partition.log.log_end_offset) == (3, 40, 40)
    assert partition.log.leader_epochs.entries == old.leader_epochs.entries
    assert node.files("a") == ["t-0-delete"] and node.files("b") == ["t-0"]
    node.append()
    node.move("b")  # it is there
    assert node.replicas.mover.target_of(partition) is None
    await node.stop()


async def test_places_are_changed_when_the_controller_has_answered(tmp_path: Path) -> None:
    node = await Node(tmp_path).start()
    node.answers = False
    node.append(5)
    node.move("b")
    await until(lambda: node.told == [(0, B)], "the controller to be told")
    node.append(5)
    node.image = node.with_partitions(1, B)  # the answer is on its way, and the image comes before it
    node.replicas.on_image(node.image, ImageDelta(changed_topics={"t"}))
    assert node.is_in("a")() and node.told == [(0, B)]
    node.replicas.mover.on_assigned((TOPIC_ID, 0), C)  # of a move before this one
    node.replicas.mover.on_assigned((TOPIC_ID, 0), B)
    await until(node.is_in("b"), "the replica in b")
    assert node.partition().log.log_end_offset == 10
    await node.stop()


async def test_a_move_is_cancelled_and_turned(tmp_path: Path) -> None:
    node = await Node(tmp_path).start()
    node.answers = False
    node.append(5)
    node.move("b")
    await until(lambda: node.told == [(0, B)], "the controller to be told")
    node.move("a")
    assert node.told == [(0, B), (0, A)]  # or it would look for the replica in b
    assert node.files("b") == ["t-0-delete"] and node.files("a") == ["t-0"]
    node.move("b")
    node.move("c")  # before anybody was told
    assert node.files("b") == ["t-0-delete"] * 2 and node.files("c") == ["t-0-future"]
    node.answers = True
    await until(node.is_in("c"), "the replica in c")
    assert node.told == [(0, B), (0, A), (0, C)]
    await node.stop()


async def test_what_cannot_be_moved(tmp_path: Path) -> None:
    node = await Node(tmp_path).start()

    def refused(topic: str, index: int, path: str) -> ErrorCode:
        with pytest.raises(ApiError) as caught:
            node.replicas.alter_log_dir(topic, index, path)
        return caught.value.code

    b = str(tmp_path / "b")
    assert refused("t", 0, b + "/") is ErrorCode.LOG_DIR_NOT_FOUND
    assert refused("x" * 249, 0, "/nowhere") is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refused("t", 9, b) is ErrorCode.REPLICA_NOT_AVAILABLE
    assert refused("t", 7, b) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert refused("other", 0, b) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cordoned = node.config.with_dynamic(dynamic_broker={"cordoned.log.dirs": b}, dynamic_default={})
    node.replicas.on_broker_config(cordoned)
    assert refused("t", 0, b) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    node.replicas.on_broker_config(node.config)
    # Two of these are remembered: partition 7 comes to be there.
    node.image = node.with_partitions(8, A)
    node.replicas.on_image(node.image, ImageDelta(changed_topics={"t"}))
    assert node.is_in("b", 7)() and node.is_in("a", 6)()

    node.logs.directories[1].fail(OSError(errno.EIO, "dead"), "a test")
    await until(lambda: node.replicas.partition_or_none("t", 7) is None, "partition 7 to be offline")
    with pytest.raises(StorageError):
        node.move("b")
    assert refused("t", 7, str(tmp_path / "c")) is ErrorCode.KAFKA_STORAGE_ERROR
    await node.stop()


async def test_the_target_fails(tmp_path: Path) -> None:
    node = await Node(tmp_path).start()
    node.answers = False
    node.append(5)
    node.move("b")
    await until(lambda: node.told == [(0, B)], "the controller to be told")
    node.logs.directories[1].fail(OSError(errno.EIO, "dead"), "a test")
    await until(lambda: node.told == [(0, B), (0, A)], "the controller to be told that it stays")
    assert node.logs.future("t", 0) is None
    node.append(5)
    node.answers = True
    node.move("c")
    await until(node.is_in("c"), "the replica in c")
    await node.stop()


async def test_the_source_fails(tmp_path: Path) -> None:
    """The metadata may name the target, where the replica is not: so it is told of the directory that is lost."""
    node = await Node(tmp_path).start()
    node.answers = False
    node.append(5)
    node.move("b")
    await until(lambda: node.told == [(0, B)], "the controller to be told")
    node.logs.directories[0].fail(OSError(errno.EIO, "dead"), "a test")
    await until(lambda: node.told == [(0, B), (0, A)], "the controller to be told that it is lost")
    with pytest.raises(ApiError) as caught:
        node.partition()
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert node.files("b") == ["t-0-future"]
    await node.stop()


async def test_the_topic_is_deleted(tmp_path: Path) -> None:
    node = await Node(tmp_path).start()
    node.replicas.on_broker_config(node.config.with_dynamic(dynamic_broker={RATE: "1"}, dynamic_default={}))
    node.append(8, size=100_000)
    node.move("b")
    topic = node.image.topics_by_name["t"]
    node.replicas.on_image(image_of([]), ImageDelta(deleted_topics=[topic]))
    assert node.files("a") == node.files("b") == ["t-0-delete"] and list(node.logs) == [] and node.told == []
    await node.stop()


async def test_a_full_disk_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = FakeDisk(tmp_path)
    node = await Node(tmp_path, disk=disk).start()
    node.append(5)
    node.move("b")
    disk.full = True
    await until(lambda: caplog.text.count("moving to") > 2, "some tries")
    assert node.is_in("a")() and node.told == []
    disk.full = False
    await until(node.is_in("b"), "the replica in b")
    await node.stop()


async def test_a_rate_holds_and_is_raised(tmp_path: Path) -> None:
    node = await Node(tmp_path).start()
    node.replicas.on_broker_config(node.config.with_dynamic(dynamic_broker={RATE: "1000"}, dynamic_default={}))
    node.append(20, size=100_000)
    node.move("b")
    future = node.logs.future("t", 0)
    assert future is not None
    await until(lambda: future.size_bytes > 0, "the first slice")
    copied = future.size_bytes
    assert copied <= 256 * 1024
    node.append()
    assert (future.size_bytes, node.is_in("a")()) == (copied, True)
    node.replicas.on_broker_config(node.config)
    await until(node.is_in("b"), "the replica in b")
    await node.stop()


async def test_one_at_a_time(tmp_path: Path) -> None:
    node = Node(tmp_path, num_replica_alter_log_dirs_threads="1")
    await node.start(node.with_partitions(3, A))
    node.answers = False
    for index in (2, 1, 0):
        node.append(2, index=index)
        node.move("b", index)
    await until(lambda: node.told == [(2, B)], "the first to be level")
    assert [one.log_end_offset for one in node.logs if one.log_dir.directory_id == B] == [2, 0, 0]
    node.answers = True
    node.replicas.mover.on_assigned((TOPIC_ID, 2), B)
    await until(lambda: all(node.is_in("b", index)() for index in range(3)), "all in b")
    assert node.told == [(2, B), (0, B), (1, B)]  # in the order of their names, once a place is free
    await node.stop()


async def test_what_was_durable_stays_so(tmp_path: Path) -> None:
    disk = FakeDisk(tmp_path)
    node = await Node(tmp_path, disk=disk).start()
    node.append(5)
    await node.partition().log.flush()
    node.append(5)
    node.move("b")
    await until(node.is_in("b"), "the replica in b")
    assert node.partition().log.recovery_point >= 5
    await node.stop()


@pytest.mark.parametrize("seed", [1, 7])
async def test_a_busy_log_is_followed(tmp_path: Path, seed: int) -> None:
    """Appends, truncations and retention go on while it moves, to and fro; no record differs in the end.

    The first seed once stopped the loop for good: a sync had ended, but its callback had not had its turn, and whoever
    came between and found the log truncated waited for that sync again and again.
    """
    rng = random.Random(seed)
    node = await Node(tmp_path).start()
    partition = node.partition()
    kept = 0, contents(partition.log)
    for at in range(12):
        target = "bc"[at % 2]
        node.append(rng.randrange(1, 8), size=rng.choice((20, 5_000, 300_000)))
        kept = partition.log.log_start_offset, contents(partition.log)
        node.move(target)
        for _ in range(rng.randrange(30)):
            log = partition.log
            choice = rng.random()
            if choice < 0.5:
                node.append(rng.randrange(1, 4), size=rng.choice((20, 5_000)))
            elif choice < 0.7 and log.log_end_offset > log.log_start_offset:
                log.truncate_to(rng.randrange(max(log.log_start_offset, log.log_end_offset - 3), log.log_end_offset))
            elif choice < 0.8:
                log.advance_log_start(rng.randrange(log.log_start_offset, log.high_watermark + 1))
            elif choice < 0.83:
                log.truncate_fully_and_start_at(log.log_end_offset + 5)
            elif choice < 0.9:
                log.roll()
                log.delete_old_segments(0)
            kept = log.log_start_offset, contents(log)
            for _ in range(rng.choice((1, 1, 50))):
                await asyncio.sleep(0)
            assert (partition.log.log_start_offset, contents(partition.log)) == kept
        await until(node.is_in(target), f"the replica in {target}")
        assert (partition.log.log_start_offset, contents(partition.log)) == kept
    await node.stop()


# --- restarts


async def half_way(root: Path) -> Node:
    """A move to b that has copied 5 of 8 records, and whose end the controller may have recorded."""
    node = await Node(root).start()
    node.answers = False
    node.append(5)
    node.move("b")
    await until(lambda: node.told == [(0, B)], "the controller to be told")
    node.append(3)
    return node


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("named", [A, B])
async def test_a_restart_on_the_way(tmp_path: Path, clean: bool, named: Uuid) -> None:
    """The log in use has more than the copy, so the move goes on, even if the metadata names the new directory."""
    first = await half_way(tmp_path)
    expected = contents(first.partition().log)
    await (first.stop() if clean else first.crash())
    node = Node(tmp_path, directory=named)
    await node.start()
    assert node.is_in("a")() and contents(node.partition().log) == expected
    await until(node.is_in("b"), "the replica in b")
    assert node.told == ([(0, B)] if named == A else [])
    assert contents(node.partition().log) == expected
    assert node.files("a") == ["t-0-delete"] and node.files("b") == ["t-0"]
    await node.stop()


async def test_a_restart_between_the_two_renames(tmp_path: Path) -> None:
    first = await half_way(tmp_path)
    future = first.logs.future("t", 0)
    assert future is not None
    expected = contents(future)
    await first.crash()
    (tmp_path / "a" / "t-0").rename(tmp_path / "a" / f"t-0.{'0' * 32}-delete")
    node = await Node(tmp_path, directory=B).start()
    assert node.is_in("b")() and contents(node.partition().log) == expected
    assert node.files("a") == ["t-0-delete"] and node.files("b") == ["t-0"] and node.told == []
    await node.stop()


async def test_a_restart_before_the_renames(tmp_path: Path) -> None:
    first = await half_way(tmp_path)
    first.partition().log.truncate_to(5)
    await first.crash()
    node = await Node(tmp_path, directory=B).start()
    assert node.is_in("b")() and node.partition().log.log_end_offset == 5
    await node.stop()


async def test_a_restart_after_the_log_in_use_has_lost_its_end(tmp_path: Path) -> None:
    """Power failed: what is in the copy alone is not in the log, and does not come back through the move."""
    first = await half_way(tmp_path)
    first.partition().log.on_truncated = None
    first.partition().log.truncate_to(2)
    await first.crash()
    node = await Node(tmp_path).start()
    node.append()
    await until(node.is_in("b"), "the replica in b")
    assert node.partition().log.log_end_offset == 3
    await node.stop()


async def test_a_restart_without_the_directory_it_comes_from(tmp_path: Path) -> None:
    first = await half_way(tmp_path)
    await first.stop()
    (tmp_path / "a").rename(tmp_path / "away")
    (tmp_path / "a").write_bytes(b"")
    node = await Node(tmp_path).start()
    assert node.replicas.partition_or_none("t", 0) is None
    assert node.files("b") == ["t-0-future"]  # kept until the other is back
    await node.stop()
    (tmp_path / "a").unlink()
    (tmp_path / "away").rename(tmp_path / "a")
    node = await Node(tmp_path).start()
    await until(node.is_in("b"), "the replica in b")
    assert node.partition().log.log_end_offset == 8
    await node.stop()


async def test_a_copy_of_a_topic_that_is_gone(tmp_path: Path) -> None:
    first = await half_way(tmp_path)
    await first.stop()
    node = Node(tmp_path)
    await node.logs.start(lambda topic: log_config())
    node.replicas.load(image_of([]))
    assert node.files("a") == node.files("b") == ["t-0-stray"]
    await node.stop()
