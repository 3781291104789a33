"""Fetchers of a follower and the fetch handler of its leader, on real logs and without a network.

Nobody starves: not behind a partition that is far behind, not behind one that is throttled. And nobody spins.
"""

from __future__ import annotations

import asyncio
import errno
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway
from support.logs import NOW, batch, log_config

from broker.fetch_sessions import FetchSessionCache
from broker.handlers.data.fetch import fetch
from broker.partition import Partition
from broker.replication.cluster import ClusterView
from broker.replication.fetchers import ReplicaFetchers, fetcher_id_of
from broker.replication.follower import FetchPosition, FollowerState, LogPosition
from broker.replication.leader import IsrChange
from broker.replication.throttle import UNLIMITED, ReplicationQuota
from config.broker import BrokerConfig
from controller.image import PartitionImage
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.uuids import Uuid
from storage.file_slice import FileSlice
from storage.log import Log

LEADER, FOLLOWER = 1, 2
TOPIC = Uuid(b"f" * 16)
VALUE = b"v" * 1_000
BATCH_BYTES = len(batch(VALUE))
WAIT_MS = 20
A_MINUTE = {
    "replica_fetch_wait_max_ms": "59000",
    "replica_lag_time_max_ms": "60000",
    "replica_socket_timeout_ms": "60000",
}


class NoController:
    def submit(self, partition: Partition, change: IsrChange) -> None:
        """The in-sync set stays as it is."""


class Pair:
    """Two brokers with the same partitions. What the follower asks is handed to the leader's handler."""

    def __init__(
        self, directory: Path, partitions: int, *, isr: tuple[int, ...], slots: int, window_s: int, **settings: str
    ) -> None:
        values = {
            "replica.fetch.wait.max.ms": str(WAIT_MS),
            "replica.fetch.response.max.bytes": str(BATCH_BYTES),
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self.config = BrokerConfig.from_map(values)
        self.leader_quota, self.follower_quota = ReplicationQuota(11, window_s), ReplicationQuota(11, window_s)
        self.requests: list[tuple[str, FetchRequest]] = []
        self.served: list[int] = []
        """Partitions in the order in which their records came."""
        self._leads, self._follows = (
            [self._partition(directory / str(node), node, index, isr) for index in range(partitions)]
            for node in (LEADER, FOLLOWER)
        )
        replicas = SimpleNamespace(partition_by_id=lambda topic_id, index: self._leads[index])
        broker = SimpleNamespace(config=self.config, fetch_sessions=FetchSessionCache(slots), replicas=replicas)
        self._context: Any = SimpleNamespace(api_version=17, broker=broker)
        self.fetchers = ReplicaFetchers(self.config, FOLLOWER, self, lambda: 12, self.follower_quota)  # type: ignore[arg-type]
        endpoint = SimpleNamespace(host="leader", port=1)
        name = self.config.inter_broker_listener_name
        image: Any = SimpleNamespace(brokers={LEADER: SimpleNamespace(id=LEADER, endpoints={name: endpoint})})
        self.fetchers.on_brokers(image)

    def _partition(self, directory: Path, node: int, index: int, isr: tuple[int, ...]) -> Partition:
        log = Log.open(str(directory / f"t-{index}"), "t", index, log_config())
        cluster = ClusterView(60_000, NoController(), lambda: 11)
        partition = Partition("t", index, TOPIC, node, log, cluster)
        partition.on_image(
            PartitionImage(replicas=(LEADER, FOLLOWER), isr=isr, leader=LEADER, leader_epoch=1, partition_epoch=1)
        )
        return partition

    async def call(
        self, host: str, port: int, request: FetchRequest, timeout_ms: float, *, lane: str, receive_buffer_bytes: int
    ) -> FetchResponse:
        """In the place of `NodeClients`."""
        self.requests.append((lane, request))
        answer = fetch(self._context, request)
        response = await answer if isinstance(answer, asyncio.Future) else answer
        for topic in response.responses:
            for data in topic.partitions:
                if isinstance(data.records, FileSlice):
                    data.records = data.records.read()
                    self.served.append(data.partition_index)
        await asyncio.sleep(0)
        return response

    def append(self, index: int, batches: int) -> None:
        for _ in range(batches):
            self._leads[index].append(batch(VALUE), NOW, acks=1)

    def follow(self) -> None:
        for partition in self._follows:
            self.fetchers.on_partition(partition)

    def lag(self, index: int) -> int:
        return self._leads[index].log.log_end_offset - self._follows[index].log.log_end_offset

    def throttle(self, index: int, *, leader: bool = False, follower: bool = False) -> None:
        self._leads[index].on_throttle(self.leader_quota if leader else None, None)
        self._follows[index].on_throttle(None, self.follower_quota if follower else None)
        self.fetchers.wake()

    def lanes(self) -> Counter[str]:
        return Counter(lane for lane, _ in self.requests)

    async def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not holds():
            assert time.monotonic() < deadline, f"served {Counter(self.served)} in {len(self.requests)} requests"
            await asyncio.sleep(0.002)

    async def rounds(self, number: int) -> None:
        """Until the fetchers have asked so many times more, or would have if they did not wait."""
        wanted = len(self.requests) + number
        await self.until(lambda: len(self.requests) >= wanted)


@pytest.fixture
async def pairs(tmp_path: Path) -> AsyncIterator[Callable[..., Pair]]:
    made: list[Pair] = []

    def make(
        partitions: int, *, isr: tuple[int, ...] = (LEADER,), slots: int = 10, window_s: int = 1_000, **settings: str
    ) -> Pair:
        """With a window so long that a quota once exceeded stays so for the rest of the test."""
        made.append(Pair(tmp_path, partitions, isr=isr, slots=slots, window_s=window_s, **settings))
        return made[-1]

    yield make
    for pair in made:
        await pair.fetchers.stop()


# --- a fetcher never ends by itself


async def test_a_partition_whose_step_fails_does_not_stop_the_others(
    pairs: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something unforeseen in one partition's log once ended the fetcher, and with it all that it fetched."""
    pair = pairs(2, replica_fetch_backoff_ms="20")
    broken = pair._follows[0].log
    appending = Log.append_as_follower

    def unforeseen(log: Log, records: memoryview) -> object:
        if log is broken:
            raise OSError(errno.EIO, "unforeseen")
        return appending(log, records)

    monkeypatch.setattr(Log, "append_as_follower", unforeseen)
    for index in (0, 1):
        pair.append(index, 3)
    pair.follow()
    await pair.until(lambda: pair.lag(1) == 0)
    assert pair.lag(0) == 3
    monkeypatch.undo()
    await pair.until(lambda: pair.lag(0) == 0)


async def test_a_fetcher_survives_an_answer_that_makes_no_sense(
    pairs: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = pairs(1, replica_fetch_backoff_ms="20")
    pair.append(0, 3)
    asked = []

    async def nonsense(self: Pair, *address: object, **options: object) -> str:
        asked.append(address)
        return "nonsense"

    with monkeypatch.context() as patched:
        patched.setattr(Pair, "call", nonsense)
        pair.follow()
        await pair.until(lambda: len(asked) > 2)
    await pair.until(lambda: pair.lag(0) == 0)


async def test_a_partition_that_has_to_wait_a_moment_does_not_wait_for_the_others(pairs: Callable[..., Pair]) -> None:
    """Its leader had not heard of its election yet. It was to be asked again after some milliseconds, but the fetch of
    the idle partitions waited for records first, up to `replica.fetch.wait.max.ms`: nothing was committed meanwhile."""
    pair = pairs(2, **A_MINUTE)
    pair.append(0, 1)
    follower = pair._follows[0]
    assert follower.image is not None
    elected = follower.image._replace(leader_epoch=2, partition_epoch=2)
    follower.on_image(elected)
    pair.follow()
    await pair.until(lambda: len(pair.requests) > 2)
    assert pair.lag(0) == 1
    pair._leads[0].on_image(elected)
    await pair.until(lambda: pair.lag(0) == 0)


# --- everyone gets a turn


@pytest.mark.parametrize("slots", [10, 0])
async def test_a_partition_far_behind_does_not_starve_the_others(pairs: Callable[..., Pair], slots: int) -> None:
    """A response has room for one batch. With a session the leader sees to it that all get a turn, without one the
    order of the requests does."""
    pair = pairs(3, slots=slots)
    pair.append(0, 30)
    pair.append(1, 3)
    pair.append(2, 3)
    pair.follow()
    await pair.until(lambda: pair.lag(1) == pair.lag(2) == 0)
    assert Counter(pair.served[:9]) == {0: 3, 1: 3, 2: 3}
    await pair.until(lambda: pair.lag(0) == 0)
    assert Counter(pair.served) == {0: 30, 1: 3, 2: 3}


# --- many partitions


class Reads:
    """Counts what is read of logs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.number = 0
        reading = Log.read

        def counted(log: Log, *args: Any, **options: Any) -> Any:
            self.number += 1
            return reading(log, *args, **options)

        monkeypatch.setattr(Log, "read", counted)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    return Reads(monkeypatch)


async def level(pairs: Callable[..., Pair], partitions: int, **settings: str) -> Pair:
    """Everything is there, and known to be committed."""
    pair = pairs(partitions, isr=(LEADER, FOLLOWER), replica_fetch_response_max_bytes="10000000", **settings)
    for index in range(partitions):
        pair.append(index, 1)
    pair.follow()
    await pair.until(lambda: all(pair.lag(index) == 0 for index in range(partitions)))
    await pair.until(lambda: all(pair._leads[index].log.high_watermark == 1 for index in range(partitions)))
    return pair


async def replicate(pair: Pair, index: int) -> None:
    """One append, until it is committed."""
    log = pair._leads[index].log
    end = log.log_end_offset + 1
    pair.append(index, 1)
    await pair.until(lambda: log.high_watermark == end)


async def test_an_append_costs_no_look_at_idle_partitions(pairs: Callable[..., Pair], reads: Reads) -> None:
    pair = await level(pairs, 200, **A_MINUTE)
    await replicate(pair, 0)  # what is committed of the others is told with this
    for index in (7, 0, 199):
        before, requests = reads.number, len(pair.requests)
        await replicate(pair, index)
        assert reads.number - before <= 5
        assert len(pair.requests) == requests + 1


async def test_an_append_moves_one_position_of_many(
    pairs: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower works out anew what to ask for only where something came."""
    pair = await level(pairs, 200, **A_MINUTE)
    await replicate(pair, 0)
    worked_out = 0
    position = FollowerState.position

    def counted(state: FollowerState, log: LogPosition) -> FetchPosition:
        nonlocal worked_out
        worked_out += 1
        return position(state, log)

    monkeypatch.setattr(FollowerState, "position", counted)
    for index in (7, 0, 199):
        await replicate(pair, index)
    assert worked_out == 3 * 2  # the one that grew, and the one before, of which it hears that it is committed


async def test_a_fetch_that_waits_in_vain_costs_no_look_at_idle_partitions(
    pairs: Callable[..., Pair], reads: Reads
) -> None:
    pair = await level(pairs, 200)
    await pair.rounds(4)
    before = reads.number
    await pair.rounds(4)
    assert reads.number == before
    assert not any(request.topics for _, request in pair.requests[-4:])


async def test_a_follower_of_idle_partitions_lives(pairs: Callable[..., Pair]) -> None:
    pair = await level(pairs, 3)
    leaderships = [partition.leadership for partition in pair._leads]
    before = [state.followers[FOLLOWER].last_caught_up_ms for state in leaderships if state is not None]
    await pair.rounds(4)
    after = [state.followers[FOLLOWER].last_caught_up_ms for state in leaderships if state is not None]
    assert all(old + WAIT_MS < new for old, new in zip(before, after, strict=True))


async def test_what_moves_in_idle_partitions_is_told(pairs: Callable[..., Pair]) -> None:
    """What is committed, and where the logs begin, both ways."""
    pair = await level(pairs, 3)
    await pair.until(lambda: all(partition.log.high_watermark == 1 for partition in pair._follows))
    await pair.rounds(3)
    pair._leads[0].log.advance_log_start(1)
    await pair.until(lambda: pair._follows[0].log.log_start_offset == 1)
    pair._follows[1].log.advance_log_start(1)  # by retention
    leadership = pair._leads[1].leadership
    assert leadership is not None
    await pair.until(lambda: leadership.followers[FOLLOWER].log_start_offset == 1)
    assert leadership.followers[FOLLOWER].log_end_offset == 1


async def test_an_idle_partition_gets_another_leader(pairs: Callable[..., Pair]) -> None:
    pair = await level(pairs, 3, replica_fetch_backoff_ms="20")
    await pair.rounds(3)
    image = pair._leads[1].image
    assert image is not None
    away = image._replace(leader=-1, leader_epoch=2, partition_epoch=2)
    pair._leads[1].on_image(away)
    await pair.rounds(3)
    back = image._replace(leader_epoch=3, partition_epoch=3)
    for partition in (pair._leads[1], pair._follows[1]):
        partition.on_image(back)
    pair.fetchers.on_partition(pair._follows[1])
    pair.append(1, 1)
    await pair.until(lambda: pair._follows[1].log.high_watermark == pair._leads[1].log.log_end_offset == 2)


async def test_idle_logs_that_move_to_another_directory_go_on(pairs: Callable[..., Pair], tmp_path: Path) -> None:
    pair = await level(pairs, 2)
    await pair.rounds(3)
    for number, partition in enumerate((pair._leads[0], pair._follows[0])):
        old = partition.log
        old.flush_blocking()
        directory = tmp_path / f"moved-{number}" / "t-0"
        shutil.copytree(old.directory, directory)
        moved = Log.open(str(directory), "t", 0, log_config())
        moved.advance_high_watermark(old.high_watermark)
        partition.on_log_moved(moved)
    await pair.rounds(2)
    pair.append(0, 1)
    await pair.until(lambda: pair._follows[0].log.high_watermark == pair._leads[0].log.log_end_offset == 2)


async def test_a_log_that_takes_the_place_of_another_is_asked_for_from_its_own_end(
    pairs: Callable[..., Pair], tmp_path: Path
) -> None:
    pair = await level(pairs, 2)
    await pair.rounds(3)
    pair._follows[0].on_log_moved(Log.open(str(tmp_path / "moved" / "t-0"), "t", 0, log_config()))
    assert pair.lag(0) == 1
    await pair.until(lambda: pair.lag(0) == 0)


async def test_one_that_has_to_ask_for_offsets_does_so_among_others(
    pairs: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = pairs(3)
    for index in range(3):
        pair.append(index, 3)
    leader = pair._leads[1].log
    leader.advance_log_start(2)
    fetching = Pair.call

    async def answering(self: Pair, host: str, port: int, request: Any, timeout_ms: float, **options: Any) -> Any:
        if isinstance(request, FetchRequest):
            return await fetching(self, host, port, request, timeout_ms, **options)
        (wanted,) = request.topics[0].partitions
        offset = leader.log_start_offset if wanted.timestamp == -2 else leader.log_end_offset
        answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index, offset=offset)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[answer])])

    monkeypatch.setattr(Pair, "call", answering)
    pair.follow()
    await pair.until(lambda: all(pair.lag(index) == 0 for index in range(3)))
    assert pair._follows[1].log.log_start_offset == 2


# --- flush.messages


async def test_a_follower_has_synced_what_its_next_fetch_acknowledges(
    pairs: Callable[..., Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = pairs(1)
    followed = pair._follows[0].log
    followed.update_config(log_config(flush_messages=1))
    durable: list[bool] = []
    asking = Pair.call

    async def noting(self: Pair, *address: Any, **options: Any) -> FetchResponse:
        durable.append(followed.recovery_point == followed.log_end_offset)
        return await asking(self, *address, **options)

    monkeypatch.setattr(Pair, "call", noting)
    pair.append(0, 3)
    pair.follow()
    await pair.until(lambda: pair.lag(0) == 0)
    await pair.rounds(1)
    assert len(durable) >= 4 and all(durable)


# --- throttled followers


async def test_a_follower_leaves_out_what_is_throttled_and_fetches_the_rest(pairs: Callable[..., Pair]) -> None:
    pair = pairs(2)
    pair.follower_quota.update(0)
    pair.append(0, 20)
    pair.append(1, 20)
    pair.throttle(0, follower=True)
    pair.follow()
    await pair.until(lambda: pair.lag(1) == 0)
    assert pair.lag(0) == 19  # one response goes through, whatever the rate is
    named = [p.partition for _, request in pair.requests[2:] for topic in request.topics for p in topic.partitions]
    assert 0 not in named
    assert any(topic.partitions == [0] for _, request in pair.requests for topic in request.forgotten_topics_data)
    pair.follower_quota.update(UNLIMITED)
    pair.fetchers.wake()
    await pair.until(lambda: pair.lag(0) == 0)


async def test_a_fetcher_with_nothing_but_throttled_partitions_rests(pairs: Callable[..., Pair]) -> None:
    pair = pairs(2)
    pair.follower_quota.update(0)
    for index in (0, 1):
        pair.append(index, 20)
        pair.throttle(index, follower=True)
    pair.follow()
    await pair.until(lambda: len(pair.served) > 0)
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(pair.requests) == 1
    pair.throttle(1)  # the topic no longer names it
    await pair.until(lambda: pair.lag(1) == 0)
    assert pair.lag(0) == 19


async def test_a_level_follower_goes_on_whatever_others_copy(pairs: Callable[..., Pair]) -> None:
    """In sync on partition 1, which is throttled as well: it must not leave the in-sync set for partition 0."""
    pair = pairs(2, isr=(LEADER, FOLLOWER))
    pair.throttle(0, follower=True)
    pair.throttle(1, follower=True)
    pair.follow()
    await pair.rounds(2)
    pair.follower_quota.update(0)
    pair.follower_quota.record(time.monotonic_ns() // 1_000_000, 10**9)
    await pair.rounds(2)
    pair.append(1, 1)
    await pair.until(lambda: pair.lag(1) == 0)


async def test_a_follower_goes_on_when_its_quota_has_room(pairs: Callable[..., Pair]) -> None:
    """Nobody wakes it: it knows when."""
    pair = pairs(1, window_s=1)
    pair.follower_quota.update(BATCH_BYTES - 1)
    pair.append(0, 2)
    pair.throttle(0, follower=True)
    pair.follow()
    await pair.until(lambda: pair.lag(0) == 0)
    assert len(pair.requests) <= 3


# --- throttling leaders


async def test_a_leader_holds_back_what_is_throttled_and_serves_the_rest(pairs: Callable[..., Pair]) -> None:
    pair = pairs(2)
    pair.leader_quota.update(0)
    pair.append(0, 20)
    pair.append(1, 20)
    pair.throttle(0, leader=True)
    pair.follow()
    await pair.until(lambda: pair.lag(1) == 0)
    assert pair.lag(0) == 19
    pair.throttle(0)
    await pair.until(lambda: pair.lag(0) == 0)


async def test_a_held_fetch_looks_again_when_there_is_room(pairs: Callable[..., Pair]) -> None:
    """It would wait for a minute."""
    pair = pairs(1, window_s=1, **A_MINUTE)
    pair.leader_quota.update(BATCH_BYTES - 1)
    pair.append(0, 2)
    pair.throttle(0, leader=True)
    pair.follow()
    await pair.until(lambda: pair.lag(0) == 0)
    assert len(pair.served) == 2


async def test_a_held_fetch_is_woken_by_a_new_rate_and_not_by_appends(pairs: Callable[..., Pair]) -> None:
    pair = pairs(1, **A_MINUTE)
    pair.leader_quota.update(0)
    pair.append(0, 2)
    pair.throttle(0, leader=True)
    pair.follow()
    await pair.until(lambda: len(pair.requests) == 2)
    pair.append(0, 1)
    for _ in range(100):
        await asyncio.sleep(0)
    assert (len(pair.requests), len(pair.served)) == (2, 1)
    pair.leader_quota.update(UNLIMITED)
    pair.throttle(0, leader=True)
    await pair.until(lambda: pair.lag(0) == 0)


async def test_a_leader_never_holds_back_a_follower_in_sync(pairs: Callable[..., Pair]) -> None:
    pair = pairs(1, isr=(LEADER, FOLLOWER))
    pair.leader_quota.update(0)
    pair.append(0, 20)
    pair.throttle(0, leader=True)
    pair.follow()
    await pair.until(lambda: pair.lag(0) == 0)
    assert pair.leader_quota.measure(time.monotonic_ns() // 1_000_000) > 0  # but it counts


# --- several fetchers per leader


async def test_fetchers_share_the_partitions_and_can_become_more_and_fewer(pairs: Callable[..., Pair]) -> None:
    pair = pairs(4)

    async def all_arrive() -> Counter[str]:
        pair.requests.clear()
        for index in range(4):
            pair.append(index, 3)
        await pair.until(lambda: all(pair.lag(index) == 0 for index in range(4)))
        await pair.rounds(4)
        return pair.lanes()

    def resize(number: int) -> None:
        config = pair.config.with_dynamic(dynamic_broker={}, dynamic_default={"num.replica.fetchers": str(number)})
        pair.fetchers.on_config(config)

    pair.follow()
    assert set(await all_arrive()) == {"replication-0"}
    resize(2)
    assert set(await all_arrive()) == {"replication-0", "replication-1"}
    by_lane = {lane: set[int]() for lane in pair.lanes()}
    for lane, request in pair.requests:
        by_lane[lane] |= {p.partition for topic in request.topics for p in topic.partitions}
    assert sorted(map(sorted, by_lane.values())) == [[0, 2], [1, 3]]
    resize(4)
    assert len(await all_arrive()) == 4
    resize(1)
    await pair.rounds(8)  # what was under way when the others were ended
    assert set(await all_arrive()) == {"replication-0"}


@pytest.mark.stock
def test_the_fetcher_of_a_partition_is_kafkas(jvm: JavaGateway) -> None:
    java = jvm.jvm
    for topic in ("t", "orders", "__consumer_offsets", "polygenelubricants", "x" * 249):
        hashed = java.org.apache.kafka.common.utils.Utils
        for index in (0, 1, 7, 1_000):
            for fetchers in (1, 2, 3, 5):
                code = java.java.util.Objects.hashCode(topic)
                combined = java.java.math.BigInteger.valueOf(31 * code + index).intValue()
                assert fetcher_id_of(topic, index, fetchers) == hashed.abs(combined) % fetchers
