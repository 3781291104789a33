"""The group coordinator on a replicated topic: nobody is told of what is not committed."""

from __future__ import annotations

import asyncio
import random
import uuid
from pathlib import Path
from typing import Any

import pytest
from support.group_requests import SESSION_MS, beat, commit, fetch, join
from support.logs import log_config

from broker.coordinator.effects import Effects
from broker.coordinator.group.base import Client
from broker.coordinator.group.config import GroupConfig
from broker.coordinator.group.core import GroupCoordinator
from broker.coordinator.shard import Answer, Shard
from broker.partition import Partition
from broker.replication.cluster import ClusterView
from broker.replication.leader import IsrChange
from controller.image import EMPTY_IMAGE, PartitionImage
from protocol.errors import ApiError, ErrorCode
from protocol.uuids import Uuid
from storage.log import Log

NODE, FOLLOWER = 1, 2
CLIENT = Client("test", "/127.0.0.1", 9)


class NoController:
    def submit(self, partition: Partition, change: IsrChange) -> None:
        raise AssertionError(f"{change} was not to be expected")


def new_core() -> GroupCoordinator:
    return GroupCoordinator(
        GroupConfig(classic_initial_rebalance_delay_ms=0), EMPTY_IMAGE, random.Random(4), lambda: str(uuid.uuid4())
    )


def image(
    leader: int, epoch: int, isr: tuple[int, ...] = (NODE, FOLLOWER), partition_epoch: int | None = None
) -> PartitionImage:
    return PartitionImage(
        replicas=(NODE, FOLLOWER),
        isr=isr,
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=epoch if partition_epoch is None else partition_epoch,
    )


def follower_goes(partition: Partition) -> None:
    partition.on_image(image(NODE, 1, (NODE,), partition_epoch=2))


def follower_returns(partition: Partition) -> None:
    partition.on_image(image(NODE, 1, partition_epoch=3))
    follower_has(partition)


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    return made_partition(tmp_path)


def made_partition(tmp_path: Path, **settings: Any) -> Partition:
    config = log_config(cleanup_policy=frozenset(("compact",)), **settings)
    log = Log.open(str(tmp_path / "o-0"), "__consumer_offsets", 0, config)
    cluster = ClusterView(10_000, NoController(), lambda: 11)
    cluster.eligible = {NODE: 11, FOLLOWER: 12}
    made = Partition("__consumer_offsets", 0, Uuid.random(), NODE, log, cluster)
    made.on_image(image(NODE, 1))
    return made


def follower_has(partition: Partition, offset: int | None = None) -> None:
    end = partition.log.log_end_offset if offset is None else offset
    partition.on_replica_fetch(FOLLOWER, 12, end, 0)


def committing(group: str, offset: int) -> Any:
    request = commit(group, "orders", offset=offset)
    return lambda core, now, token: core.offset_commit(now, token, request, CLIENT)


def joining(group: str, member: str = "") -> Any:
    """A client of before KIP-394 is a member with its first request."""
    return lambda core, now, token: core.join_group(now, token, join(group, member), CLIENT._replace(api_version=3))


def beating(group: str, member: str, generation: int) -> Any:
    return lambda core, now, token: core.heartbeat(now, token, beat(group, member, generation), CLIENT)


def assert_not_available(answer: Answer) -> None:
    error = answer.exception()
    assert isinstance(error, ApiError) and error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def offset_in(core: GroupCoordinator, group: str) -> int:
    (asked,) = fetch(group, topics={"orders": [0]}).groups
    answer = core.offset_fetch(0, asked, require_stable=False)
    return answer.topics[0].partitions[0].committed_offset


def committed(shard: Shard, group: str) -> int:
    return offset_in(shard.core_or_raise, group)


async def test_a_commit_is_answered_when_the_followers_have_it(partition: Partition) -> None:
    shard = Shard(partition, new_core)
    shard.start()
    answer = shard.write(committing("g", 5))
    told = shard.read(lambda core: offset_in(core, "g"))
    assert not answer.done() and not told.done()
    follower_has(partition)
    assert answer.done() and answer.result().topics[0].partitions[0].error_code == 0
    assert told.done() and told.result() == 5
    again = shard.read(lambda core: offset_in(core, "g"))
    assert again.done() and again.result() == 5
    shard.close(ErrorCode.NOT_COORDINATOR)


async def test_an_offset_is_told_when_it_is_synced_and_committed(tmp_path: Path) -> None:
    """With flush.messages replies wait for the disk first, then for the followers. What is told is what was known when
    it was asked for: a later commit may not be told with it, for that one may still be lost."""
    partition = made_partition(tmp_path, flush_messages=1)
    shard = Shard(partition, new_core)
    shard.start()
    first = shard.write(committing("g", 1))
    told = shard.read(lambda core: offset_in(core, "g"))
    assert not told.done()
    await shard.settle()
    assert partition.log.recovery_point == partition.log.log_end_offset
    assert not first.done() and not told.done()
    between = partition.log.log_end_offset
    later = shard.write(committing("g", 2))
    follower_has(partition, between)
    assert await told == 1 and first.done() and not later.done()
    await shard.settle()
    assert not later.done()
    follower_has(partition)
    assert later.done()
    shard.close(ErrorCode.NOT_COORDINATOR)


async def test_answers_keep_their_order(partition: Partition) -> None:
    shard = Shard(partition, new_core)
    shard.start()
    first = shard.write(committing("g", 1))
    between = partition.log.log_end_offset
    second = shard.write(committing("g", 2))
    follower_has(partition, between)
    assert first.done() and not second.done()
    follower_has(partition)
    assert second.done()
    shard.close(ErrorCode.NOT_COORDINATOR)


async def test_a_commit_that_takes_too_long_is_given_up(partition: Partition) -> None:
    shard = Shard(partition, new_core, commit_timeout_ms=20)
    shard.start()
    answer = shard.write(committing("g", 1))
    await asyncio.wait([answer], timeout=5)
    assert_not_available(answer)
    later = shard.write(committing("g", 2))
    follower_has(partition)
    assert later.done() and later.exception() is None
    shard.close(ErrorCode.NOT_COORDINATOR)


async def test_every_answer_has_a_deadline_of_its_own(partition: Partition) -> None:
    """Answers that waited behind a commit that had been given up had none left: OffsetFetch and heartbeats of the whole
    shard were answered when the followers came back, and what else was asked on their connections behind them."""
    shard = Shard(partition, new_core, commit_timeout_ms=20)
    shard.start()
    answer = shard.write(committing("g", 1))
    await asyncio.wait([answer], timeout=5)
    for _ in range(2):
        beaten = shard.ask(beating("g", "nobody", 1))
        reading = shard.read(lambda core: offset_in(core, "g"))
        assert not beaten.done() and not reading.done()
        await asyncio.wait([beaten, reading], timeout=5)
        for given_up in (answer, beaten, reading):
            assert_not_available(given_up)
    told = shard.read(lambda core: offset_in(core, "g"))
    follower_has(partition)
    assert told.done() and told.result() == 1
    shard.close(ErrorCode.NOT_COORDINATOR)


async def test_a_deadline_counts_from_when_it_was_asked(partition: Partition) -> None:
    shard = Shard(partition, new_core, commit_timeout_ms=1_000)
    shard.start()
    first = shard.write(committing("g", 1))
    await asyncio.wait([first], timeout=0.2)
    reading = shard.read(lambda core: offset_in(core, "g"))
    await asyncio.wait([first], timeout=5)
    assert first.done() and not reading.done()
    follower_has(partition)
    assert reading.done() and reading.result() == 1
    shard.close(ErrorCode.NOT_COORDINATOR)


async def test_a_lost_leadership_is_told_to_those_who_wait(partition: Partition) -> None:
    shard = Shard(partition, new_core)
    shard.start()
    answer = shard.write(committing("g", 1))
    told = shard.read(lambda core: offset_in(core, "g"))
    partition.on_image(image(FOLLOWER, 2))
    shard.close(ErrorCode.NOT_COORDINATOR)
    assert isinstance(answer.exception(), ApiError)
    assert isinstance(told.exception(), ApiError)


async def test_a_new_coordinator_waits_until_its_log_is_committed(partition: Partition) -> None:
    """The last one may have told of offsets above the high watermark that the new leader knows."""
    shard = Shard(partition, new_core)
    shard.start()
    told = shard.write(committing("g", 7))
    follower_has(partition)
    assert told.done()
    unknown = shard.write(committing("g", 8))  # in the log, but not committed in this epoch
    partition.on_image(image(FOLLOWER, 2))
    shard.close(ErrorCode.NOT_COORDINATOR)
    assert unknown.done()
    partition.on_image(image(NODE, 3))
    again = Shard(partition, new_core)
    again.start()
    await asyncio.sleep(0)
    with pytest.raises(ApiError) as loading:
        _ = again.core_or_raise
    assert loading.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    follower_has(partition)
    await again.settle()
    assert committed(again, "g") == 8
    again.close(ErrorCode.NOT_COORDINATOR)


# Below min.insync.replicas


@pytest.fixture
def demanding(tmp_path: Path) -> Partition:
    """Nothing is committed on it without the follower."""
    return made_partition(tmp_path, min_insync_replicas=2)


async def test_without_enough_replicas_a_commit_is_refused_and_nothing_else(demanding: Partition) -> None:
    """Each commit made the coordinator refuse all who waited and read its log again; if the log then held a record that
    could not be committed, it had nothing to say to anyone until the follower was back."""
    shard = Shard(demanding, new_core)
    shard.start()
    stored = shard.write(committing("g", 5))
    joined = shard.write(joining("members"))
    follower_has(demanding)
    assert (await stored).topics[0].partitions[0].error_code == 0
    member = await joined
    waiting = shard.write(joining("members"))
    core, end_offset = shard.core_or_raise, demanding.log.log_end_offset
    follower_goes(demanding)
    for refused in (committing("g", 6), joining("members", member.member_id), joining("new")):
        with pytest.raises(ApiError) as error:
            shard.write(refused)
        assert error.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert shard.core_or_raise is core and not waiting.done()
    assert demanding.log.log_end_offset == end_offset
    beaten = shard.ask(beating("members", member.member_id, member.generation_id))
    assert beaten.done() and beaten.result().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    told = shard.read(lambda core: offset_in(core, "g"))
    assert told.done() and told.result() == 5
    follower_returns(demanding)
    again = shard.write(committing("g", 6))
    follower_has(demanding)
    assert again.done() and committed(shard, "g") == 6
    shard.close(ErrorCode.NOT_COORDINATOR)


async def test_a_commit_under_way_when_replicas_go(demanding: Partition) -> None:
    """It is in the log of the leader alone: it is given up, what might tell of it too, and the coordinator stays."""
    shard = Shard(demanding, new_core, commit_timeout_ms=20)
    shard.start()
    answer = shard.write(committing("g", 5))
    core = shard.core_or_raise
    follower_goes(demanding)
    told = shard.read(lambda core: offset_in(core, "g"))
    await asyncio.wait([answer, told], timeout=5)
    assert_not_available(answer)
    assert_not_available(told)
    assert shard.core_or_raise is core
    follower_returns(demanding)
    told = shard.read(lambda core: offset_in(core, "g"))
    assert told.done() and told.result() == 5
    shard.close(ErrorCode.NOT_COORDINATOR)


async def test_what_writes_unforeseen_is_stored_and_held(demanding: Partition) -> None:
    """A heartbeat that changes an assignment, a deleted topic: as in Kafka it goes to the log whatever the in-sync set
    is like, and nobody is told before it is committed. A core that knew more than its log would have to go."""
    shard = Shard(demanding, new_core, commit_timeout_ms=20)
    shard.start()
    core = shard.core_or_raise
    follower_goes(demanding)
    answer = shard.ask(committing("g", 5))
    assert demanding.log.log_end_offset == 1 and not answer.done()
    await asyncio.wait([answer], timeout=5)
    assert_not_available(answer)
    shard._run(lambda: Effects(core.offset_commit(0, object(), commit("other", "orders"), CLIENT).records))
    assert demanding.log.log_end_offset == 2 and shard.core_or_raise is core
    follower_returns(demanding)
    assert demanding.log.high_watermark == 2
    assert committed(shard, "g") == 5
    shard.close(ErrorCode.NOT_COORDINATOR)


async def test_sessions_go_on_where_they_stood(demanding: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client whose commits are refused looks for its coordinator all the time, and may get no heartbeat through. Its
    session ended in the moment in which the follower came back."""
    now = [1_000_000]
    monkeypatch.setattr("broker.coordinator.shard.now_ms", lambda: now[0])
    shard = Shard(demanding, new_core)
    shard.start()
    joined = shard.write(joining("members"))
    follower_has(demanding)
    member = await joined
    session_end_ms = shard.core_or_raise.next_deadline_ms
    assert session_end_ms == now[0] + SESSION_MS
    now[0] += 1_000
    follower_goes(demanding)
    with pytest.raises(ApiError):
        shard.write(committing("g", 1))
    now[0] += SESSION_MS
    shard._on_timer()
    follower_returns(demanding)
    now[0] += 1_000
    shard._on_timer()
    assert shard.core_or_raise.next_deadline_ms == session_end_ms + SESSION_MS + 1_000
    beaten = shard.ask(beating("members", member.member_id, member.generation_id))
    assert beaten.result().error_code == ErrorCode.NONE
    shard.close(ErrorCode.NOT_COORDINATOR)


async def test_time_stands_still_without_enough_replicas(demanding: Partition) -> None:
    """No session ends and no rebalance goes on: members that have to join again would not be let in, and what ends in a
    record would keep OffsetFetch waiting until the follower is back."""
    shard = Shard(demanding, new_core)
    shard.start()
    joined = shard.write(joining("members"))
    follower_has(demanding)
    core, end_offset = shard.core_or_raise, demanding.log.log_end_offset
    follower_goes(demanding)
    await asyncio.wait([joined], timeout=0.2)
    assert not joined.done() and core.next_deadline_ms is not None
    shard.ask(beating("g", "nobody", 1))
    await asyncio.wait([joined], timeout=0.1)
    assert not joined.done()
    assert shard.core_or_raise is core and demanding.log.log_end_offset == end_offset
    follower_returns(demanding)
    await asyncio.wait([joined], timeout=5)
    assert joined.result().error_code == ErrorCode.NONE
    shard.close(ErrorCode.NOT_COORDINATOR)
