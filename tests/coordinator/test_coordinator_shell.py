"""The shell around the group core: the log is read back, failures lead back to the log, replies keep their order."""

from __future__ import annotations

import asyncio
import errno
import logging
import random
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.java_gateway import JavaGateway
from support.fake_disk import FakeDisk
from support.group_requests import beat, commit, fetch, join
from support.logs import log_config

from broker.coordinator.effects import Effects
from broker.coordinator.group.base import Client
from broker.coordinator.group.config import GroupConfig
from broker.coordinator.group.core import GroupCoordinator
from broker.coordinator.partitioning import java_hash, partition_for
from broker.coordinator.records import CoordinatorRecord
from broker.coordinator.shard import Shard, Write
from broker.partition import Partition
from controller.image import EMPTY_IMAGE, PartitionImage
from protocol.compression import Compression
from protocol.coordinator import encode_key
from protocol.coordinator.offset_commit import OffsetCommitKey, OffsetCommitValue
from protocol.errors import ApiError, ErrorCode
from protocol.messages.end_txn_marker import EndTxnMarker
from protocol.messages.join_group import JoinGroupResponse
from protocol.messages.offset_fetch import OffsetFetchResponseGroup
from protocol.records import ControlType, Record, build_batch, control_batch
from protocol.uuids import Uuid
from storage.disk import Disk
from storage.errors import StorageError
from storage.log import Log
from storage.results import AppendOrigin

NODE = 1
CLIENT = Client("test", "/127.0.0.1", 9)
TOPIC = "orders"


def new_core() -> GroupCoordinator:
    return GroupCoordinator(
        GroupConfig(classic_initial_rebalance_delay_ms=0), EMPTY_IMAGE, random.Random(4), lambda: str(uuid.uuid4())
    )


class Bench:
    """One partition of `__consumer_offsets` in a real directory, and its shard."""

    def __init__(self, directory: Path, disk: Disk, **settings: object) -> None:
        self.disk = disk
        path = str(directory / "__consumer_offsets-0")
        config = log_config(cleanup_policy=frozenset(("compact",)), **settings)
        log = Log.open(path, "__consumer_offsets", 0, config, disk=disk)
        self.partition = Partition("__consumer_offsets", 0, Uuid.random(), NODE, log)
        self.partition.on_image(led_by(NODE))
        self.shard = self.new_shard()

    @property
    def log(self) -> Log:
        return self.partition.log

    def new_shard(self, compression: Compression = Compression.NONE) -> Shard:
        return Shard(self.partition, new_core, compression)

    async def started(self, shard: Shard | None = None) -> Shard:
        shard = shard or self.shard
        shard.start()
        await shard.settle()
        return shard


def led_by(leader: int) -> PartitionImage:
    return PartitionImage(replicas=(NODE,), isr=(NODE,), leader=leader, leader_epoch=3)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, FakeDisk(tmp_path))


def committing(group: str, offset: int, topic: str = TOPIC) -> Write:
    request = commit(group, topic, offset=offset)
    return lambda core, now, token: core.offset_commit(now, token, request, CLIENT)


def joining(group: str, session_ms: int = 10_000) -> Write:
    old = CLIENT._replace(api_version=3)
    request = join(group, session_ms=session_ms)
    return lambda core, now, token: core.join_group(now, token, request, old)


def offset_in(core: GroupCoordinator, group: str, topic: str = TOPIC) -> int:
    (asked,) = fetch(group, topics={topic: [0]}).groups
    answer: OffsetFetchResponseGroup = core.offset_fetch(0, asked, require_stable=False)
    return answer.topics[0].partitions[0].committed_offset


def committed(shard: Shard, group: str, topic: str = TOPIC) -> int:
    return offset_in(shard.core_or_raise, group, topic)


# Where a group lives


def test_java_hash(jvm: JavaGateway) -> None:
    rng = random.Random(9)
    names = ["", "a", "group", "Ünïcode", "\U0001f600 pair", "polygenelubricants", "z" * 500]
    names += ["".join(chr(rng.choice((65, 0x4E2D, 0x1F600)) + rng.randrange(99)) for _ in range(9)) for _ in range(50)]
    utils = jvm.jvm.org.apache.kafka.common.utils.Utils
    for name in names:
        value = jvm.jvm.java.util.Objects.hashCode(name)
        assert java_hash(name) == value, name
        for partitions in (1, 3, 50):
            assert partition_for(name, partitions) == utils.abs(value) % partitions


# Reading the log back


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP])
async def test_state_comes_back_from_the_log(bench: Bench, compression: Compression) -> None:
    shard = await bench.started(bench.new_shard(compression))
    for number in range(20):
        await shard.write(committing(f"group-{number % 4}", number))
    joined: JoinGroupResponse = await shard.write(joining("members"))
    again = await bench.started(bench.new_shard())
    assert [committed(again, f"group-{number}") for number in range(4)] == [16, 17, 18, 19]
    assert joined.member_id
    shard.close(ErrorCode.NOT_COORDINATOR)
    again.close(ErrorCode.NOT_COORDINATOR)


async def test_nobody_is_answered_before_the_log_is_read(bench: Bench) -> None:
    shard = await bench.started()
    await shard.write(committing("group", 5))
    loading = bench.new_shard()
    loading.start()
    with pytest.raises(ApiError) as refused:
        loading.write(committing("group", 6))
    assert refused.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await loading.settle()
    assert committed(loading, "group") == 5


async def test_unknown_record_types_are_stepped_over(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A newer broker may have written kinds of records that we do not know."""
    key = encode_key(OffsetCommitKey(group="group", topic=TOPIC, partition=0))
    value = b"\0\1" + OffsetCommitValue(offset=9, metadata="").encode(1)
    records = [Record(0, 0, b"\x7f\x00future", b"?"), Record(0, 0, key, value)]
    bench.partition.append(memoryview(build_batch(records)), 0, acks=-1)
    shard = await bench.started()
    assert committed(shard, "group") == 9
    assert "offset 0" in caplog.text


async def test_a_log_that_cannot_be_read_has_no_coordinator(bench: Bench) -> None:
    """A key that no broker writes: better no coordinator than one that forgot something."""
    record = Record(0, 0, encode_key(OffsetCommitKey(group="g", topic=TOPIC, partition=0)), b"\0\1\0")
    bench.partition.append(memoryview(build_batch([record])), 0, acks=-1)
    shard = await bench.started()
    with pytest.raises(ApiError) as refused:
        shard.write(committing("group", 1))
    assert refused.value.code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("committed_by_marker", [True, False])
async def test_offsets_of_a_transaction_count_from_its_marker_on(tmp_path: Path, committed_by_marker: bool) -> None:
    bench = Bench(tmp_path, Disk())
    key = encode_key(OffsetCommitKey(group="group", topic=TOPIC, partition=0))
    value = b"\0\1" + OffsetCommitValue(offset=9, metadata="").encode(1)
    producer = {"producer_id": 7, "producer_epoch": 1}
    batch = build_batch([Record(0, 0, key, value)], base_sequence=0, is_transactional=True, **producer)
    bench.partition.append(memoryview(batch), 0, acks=-1, origin=AppendOrigin.COORDINATOR)
    open_transaction = await bench.started(bench.new_shard())
    assert committed(open_transaction, "group") == -1
    kind = ControlType.COMMIT if committed_by_marker else ControlType.ABORT
    marker = control_batch(kind, 0, b"\0\0" + EndTxnMarker().encode(0), 0, **producer)
    origin = AppendOrigin.COORDINATOR
    bench.log.append_as_leader(memoryview(marker), leader_epoch=3, now_ms=0, origin=origin, transaction_version=1)
    bench.log.advance_high_watermark(bench.log.log_end_offset)
    decided = await bench.started(bench.new_shard())
    assert committed(decided, "group") == (9 if committed_by_marker else -1)


# Failures


async def test_a_failed_append_is_told_and_forgotten(bench: Bench) -> None:
    """The core has already changed when the disk refuses; only the log knows what is true."""
    shard = await bench.started()
    await shard.write(committing("group", 1))
    bench.disk.fail_next_write = errno.ENOSPC
    with pytest.raises(ApiError) as refused:
        await shard.write(committing("group", 2))
    assert refused.value.code == ErrorCode.NOT_COORDINATOR
    await shard.settle()
    assert committed(shard, "group") == 1
    await shard.write(committing("group", 3))
    assert committed(shard, "group") == 3


async def test_a_failed_append_frees_those_who_wait_for_others(bench: Bench) -> None:
    """A member that waits in JoinGroup must not wait for a core that is gone."""
    shard = await bench.started()
    first = await shard.write(joining("group"))
    waiting = shard.write(joining("group"))
    assert not waiting.done() and first.member_id
    bench.disk.fail_next_write = errno.ENOSPC
    with pytest.raises(ApiError):
        await shard.write(committing("other", 2))
    with pytest.raises(ApiError):
        await waiting
    await shard.settle()
    shard.close(ErrorCode.NOT_COORDINATOR)


async def test_a_bug_in_the_core_leads_back_to_the_log(bench: Bench) -> None:
    shard = await bench.started()
    await shard.write(committing("group", 1))

    def broken(core: GroupCoordinator, now: int, token: object) -> Effects:
        core.offset_commit(now, token, commit("group", TOPIC, offset=99), CLIENT)
        raise KeyError("a bug")

    with pytest.raises(ApiError) as refused:
        await shard.write(broken)
    assert refused.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
    await shard.settle()
    assert committed(shard, "group") == 1


async def test_too_large_for_one_batch(tmp_path: Path) -> None:
    """What a client asks for is stored as a whole or not at all; what time brings may be divided."""
    bench = Bench(tmp_path, FakeDisk(tmp_path), max_message_bytes=500)
    shard = await bench.started()

    def many(core: GroupCoordinator, now: int, token: object) -> Effects:
        effects = core.offset_commit(now, token, commit("group", TOPIC, metadata="x" * 100), CLIENT)
        return Effects(effects.records * 10, effects.replies)

    with pytest.raises(ApiError) as refused:
        await shard.write(many)
    assert refused.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert bench.log.log_end_offset == 0
    await shard.settle()
    records: list[CoordinatorRecord] = []
    shard.write(lambda core, now, token: collect(core, now, token, records))
    before = bench.log.log_end_offset
    shard._run(lambda: Effects(records * 10))
    assert bench.log.log_end_offset == before + 10


def collect(core: GroupCoordinator, now: int, token: object, into: list[CoordinatorRecord]) -> Effects:
    effects = core.offset_commit(now, token, commit("group", TOPIC, metadata="x" * 100), CLIENT)
    into += effects.records
    return effects


# Order, time, the end


async def test_replies_wait_for_the_sync_in_order(tmp_path: Path) -> None:
    """flush.messages=1: an answer comes after the fdatasync, and a read-only answer behind one that waits does too."""
    bench = Bench(tmp_path, FakeDisk(tmp_path), flush_messages=1)
    shard = await bench.started()
    order: list[str] = []

    def noted(name: str) -> Callable[[object], None]:
        return lambda _: order.append(name)

    writes: list[tuple[str, Write]] = [
        ("commit", committing("group", 1)),
        ("heartbeat", lambda core, now, token: core.heartbeat(now, token, beat("group", "nobody", 1), CLIENT)),
        ("second", committing("group", 2)),
    ]
    answers = []
    for name, write in writes:
        answer = shard.write(write)
        answer.add_done_callback(noted(name))
        assert not answer.done()
        answers.append(answer)
    reading = shard.read(lambda core: offset_in(core, "group"))
    reading.add_done_callback(noted("read"))
    assert not reading.done()
    answers.append(reading)
    await asyncio.gather(*answers)
    await asyncio.sleep(0)
    assert order == ["commit", "heartbeat", "second", "read"]
    assert reading.result() == 2
    assert bench.log.recovery_point == bench.log.log_end_offset
    assert shard.read(lambda _: "done").done()


async def test_a_failed_sync_acknowledges_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FakeDisk(tmp_path), flush_messages=1)
    shard = await bench.started()
    await shard.write(committing("group", 1))
    bench.disk.fail_next_fsync = errno.EIO
    with pytest.raises(ApiError) as refused:
        await shard.write(committing("group", 2))
    assert refused.value.code == ErrorCode.NOT_COORDINATOR
    await shard.settle()
    shard.close(ErrorCode.NOT_COORDINATOR)


class BrokenDisk(FakeDisk):
    def fdatasync(self, fd: int) -> None:
        raise RuntimeError("not an error of the disk")


async def test_a_sync_that_ends_otherwise_is_told_too(tmp_path: Path) -> None:
    """Whoever waited for the sync would have waited for ever."""
    shard = await Bench(tmp_path, BrokenDisk(tmp_path), flush_messages=1).started()
    answer = shard.write(committing("group", 1))
    await asyncio.wait([answer], timeout=5)
    error = answer.exception() if answer.done() else None
    assert isinstance(error, ApiError) and error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    await shard.settle()
    shard.close(ErrorCode.NOT_COORDINATOR)


async def test_a_second_failure_begins_the_reading_anew(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """An append failed, and then the sync before it: the log was read twice at once, and the second core took the place
    of the first one, with which clients had been talking meanwhile."""
    caplog.set_level(logging.INFO, "broker.coordinator")
    shard = await bench.started()
    await shard.write(committing("group", 1))
    for what in ("appending", "syncing"):
        shard._fail(StorageError(f"{what} failed"))
    await shard.settle()
    assert committed(shard, "group") == 1
    assert caplog.text.count("records replayed") == 1
    shard.close(ErrorCode.NOT_COORDINATOR)


async def test_time_moves_the_core(bench: Bench) -> None:
    """The shard's timer fires the core's deadline: a rebalance goes on without the member that never came back."""
    shard = await bench.started()
    await shard.write(joining("group", 6_000))
    deadline = shard.core_or_raise.next_deadline_ms
    assert deadline is not None
    assert shard._timer is not None and shard._armed_ms <= deadline
    shard.close(ErrorCode.NOT_COORDINATOR)
    assert shard._timer is None


async def test_closing_answers_everyone(bench: Bench) -> None:
    shard = await bench.started()
    await shard.write(joining("group"))
    waiting = shard.write(joining("group"))
    shard.close(ErrorCode.NOT_COORDINATOR)
    with pytest.raises(ApiError) as refused:
        await waiting
    assert refused.value.code == ErrorCode.NOT_COORDINATOR
    with pytest.raises(ApiError) as refused:
        shard.write(committing("group", 1))
    assert refused.value.code == ErrorCode.NOT_COORDINATOR


async def test_a_client_that_goes_away_is_not_answered(bench: Bench) -> None:
    shard = await bench.started()
    await shard.write(joining("group"))
    waiting = shard.write(joining("group"))
    waiting.cancel()
    await asyncio.sleep(0)
    await shard.write(committing("other", 1))
    assert waiting.cancelled() and not shard._waiting
    shard.close(ErrorCode.NOT_COORDINATOR)
