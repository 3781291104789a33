"""Idle partitions of a fetch session are not read. The naive twin reads all of them every time.

Both get the same requests, and must give the same answers and know the same of their followers, whatever happens to
the partitions meanwhile.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.logs import NOW, batch, log_config

from broker.fetch_sessions import FetchSessionCache
from broker.handlers.data.fetch import fetch
from broker.partition import Partition
from broker.replication.cluster import ClusterView
from broker.replication.leader import IsrChange, IsrResult
from broker.replication.throttle import ReplicationQuota
from config.broker import BrokerConfig
from controller.image import PartitionImage
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from protocol.records import ControlType, control_batch
from protocol.uuids import Uuid
from storage.log import Log
from storage.results import AppendOrigin

NODE, FOLLOWER, ELSEWHERE = 1, 2, 9
TOPIC = Uuid(b"i" * 16)
PARTITIONS = 6
ALONE = 5
"""A partition with one replica; the others have two."""
VERSION = 15
BROKER_EPOCHS = {NODE: 11, FOLLOWER: 12}


class Reader:
    """One fetch session: a follower's, or a consumer's."""

    def __init__(self, replica: int, *, committed: bool) -> None:
        self.replica = replica
        self.committed = committed
        self.session_id = self.epoch = 0
        self.offsets: dict[int, int] = {}


class World:
    """A broker with some partitions, to which things happen by chance."""

    def __init__(self, directory: Path, seed: int, *, naive: bool) -> None:
        self.dice = random.Random(seed)
        self.directory = directory
        self.naive = naive
        self.asked: list[tuple[Partition, IsrChange]] = []
        self.cluster = ClusterView(60_000, self, lambda: BROKER_EPOCHS[NODE])
        self.cluster.eligible = dict(BROKER_EPOCHS)
        self.quota = ReplicationQuota(11, 1_000)
        self.images = [
            PartitionImage(replicas=replicas, isr=replicas, leader=NODE, leader_epoch=1, partition_epoch=1)
            for replicas in [(NODE, FOLLOWER)] * ALONE + [(NODE,)]
        ]
        self.held: dict[int, Partition] = {}
        self.transactions: dict[int, int] = {}
        self.producer = 1_000
        self.moves = 0
        for index in range(PARTITIONS):
            self.hold(index, Log.open(str(directory / f"t-{index}"), "t", index, log_config()))
        self.sessions = FetchSessionCache(10, random.Random(1))
        config = BrokerConfig.from_map({})
        replicas = SimpleNamespace(partition_by_id=self.find)
        broker = SimpleNamespace(config=config, fetch_sessions=self.sessions, replicas=replicas)
        self.context: Any = SimpleNamespace(api_version=VERSION, broker=broker)
        self.readers = [
            Reader(FOLLOWER, committed=False),
            Reader(-1, committed=False),
            Reader(-1, committed=True),
        ]

    def submit(self, partition: Partition, change: IsrChange) -> None:
        self.asked.append((partition, change))

    def find(self, topic_id: Uuid, index: int) -> Partition:
        if index not in self.held:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        return self.held[index]

    def hold(self, index: int, log: Log) -> None:
        partition = self.held[index] = Partition("t", index, TOPIC, NODE, log, self.cluster)
        partition.on_image(self.images[index])

    # --- what happens

    def happen(self) -> None:
        index = self.dice.randrange(PARTITIONS)
        partition = self.held.get(index)
        if partition is None:
            self.hold(index, Log.open(str(self.directory / f"t-{index}-{self.moves}"), "t", index, log_config()))
            return
        events: list[tuple[int, Callable[[int, Partition], None]]] = [
            (12, self.append),
            (3, self.begin_or_end_transaction),
            (2, self.advance_log_start),
            (3, self.change_isr),
            (2, self.change_leader),
            (2, self.answer_isr_change),
            (1, self.move),
            (1, self.lose),
            (1, self.throttle),
        ]
        weights = [weight for weight, _ in events]
        (chosen,) = self.dice.choices([event for _, event in events], weights)
        chosen(index, partition)

    def append(self, index: int, partition: Partition) -> None:
        if self.images[index].leader == NODE:
            partition.append(batch(self.dice.randbytes(50)), NOW, acks=1)

    def begin_or_end_transaction(self, index: int, partition: Partition) -> None:
        if self.images[index].leader != NODE:
            return
        begun = self.transactions.pop(index, None)
        if begun is None:
            self.producer += 1
            self.transactions[index] = self.producer
            producer = {"producer_id": self.producer, "producer_epoch": 0}
            partition.append(batch(b"t", base_sequence=0, is_transactional=True, **producer), NOW, acks=1)
        else:
            kind = self.dice.choice([ControlType.COMMIT, ControlType.ABORT])
            marker = control_batch(kind, 0, b"\0\0\0\0\0\1", NOW, producer_id=begun, producer_epoch=0)
            origin = AppendOrigin.COORDINATOR
            epoch = self.images[index].leader_epoch
            log = partition.log
            log.append_as_leader(
                memoryview(marker), leader_epoch=epoch, now_ms=NOW, origin=origin, transaction_version=1
            )
            if index == ALONE:
                log.advance_high_watermark(log.log_end_offset)

    def advance_log_start(self, index: int, partition: Partition) -> None:
        log = partition.log
        log.advance_log_start(self.dice.randint(log.log_start_offset, log.high_watermark))

    def change_isr(self, index: int, partition: Partition) -> None:
        if index != ALONE:
            self.on_image(index, isr=self.dice.choice([(NODE,), (NODE, FOLLOWER)]))

    def change_leader(self, index: int, partition: Partition) -> None:
        image = self.images[index]
        leader = NODE if image.leader != NODE else self.dice.choice([NODE, ELSEWHERE])
        self.on_image(index, leader=leader, leader_epoch=image.leader_epoch + 1)

    def on_image(self, index: int, **fields: Any) -> None:
        image = self.images[index]
        self.images[index] = image._replace(partition_epoch=image.partition_epoch + 1, **fields)
        self.held[index].on_image(self.images[index])

    def answer_isr_change(self, index: int, partition: Partition) -> None:
        """Before the metadata tells, or in place of it."""
        for asked, change in self.asked:
            if asked.awaits(change):
                if self.dice.random() < 0.5:
                    asked.on_isr_refused(change)
                else:
                    epoch = change.partition_epoch
                    asked.on_isr_result(change, IsrResult(change.leader_epoch, epoch, change.broker_ids))

    def move(self, index: int, partition: Partition) -> None:
        """To another directory, as the mover does it."""
        self.moves += 1
        old = partition.log
        old.flush_blocking()
        directory = self.directory / f"moved-{self.moves}" / f"t-{index}"
        shutil.copytree(old.directory, directory)
        log = Log.open(str(directory), "t", index, log_config(), log_start_offset=old.log_start_offset)
        assert log.log_end_offset == old.log_end_offset
        log.advance_high_watermark(old.high_watermark)
        partition.on_log_moved(log)

    def lose(self, index: int, partition: Partition) -> None:
        self.moves += 1
        del self.held[index]
        self.transactions.pop(index, None)
        partition.on_gone()

    def throttle(self, index: int, partition: Partition) -> None:
        self.quota.update(self.dice.choice([0, 1_000_000_000]))
        partition.on_throttle(self.dice.choice([None, self.quota]), None)

    # --- who asks

    def ask(self, reader: Reader) -> list[object]:
        if self.dice.random() < 0.03:
            reader.epoch = 0  # a full request
        known = list(range(PARTITIONS)) if reader.epoch == 0 else sorted(reader.offsets)
        named = known if reader.epoch == 0 else [index for index in range(PARTITIONS) if self.dice.random() < 0.3]
        forgotten = [index for index in known if index not in named and self.dice.random() < 0.03]
        wanted = []
        for index in named:
            partition = self.held.get(index)
            end = 0 if partition is None else partition.log.log_end_offset
            offset = end if self.dice.random() < 0.8 else self.dice.randint(0, end + 1)
            reader.offsets[index] = offset
            wanted.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=self.dice.choice([-1, self.images[index].leader_epoch]),
                    fetch_offset=offset,
                    last_fetched_epoch=self.dice.choice([-1, -1, self.images[index].leader_epoch, 1]),
                    log_start_offset=self.dice.choice([0, 0, 1]) if reader.replica >= 0 else -1,
                    partition_max_bytes=200,
                )
            )
        for index in forgotten:
            del reader.offsets[index]
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=reader.replica, replica_epoch=BROKER_EPOCHS.get(reader.replica, -1)),
            max_wait_ms=0,
            max_bytes=300,
            isolation_level=int(reader.committed),
            session_id=reader.session_id,
            session_epoch=reader.epoch,
            topics=[FetchTopic(topic_id=TOPIC, partitions=wanted)] if wanted else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=TOPIC, partitions=forgotten)] if forgotten else [],
        )
        session = self.sessions.find(reader.session_id)
        if self.naive and session is not None:
            for target in session.partitions.values():
                target.forget_idle()
        response = fetch(self.context, request)
        assert isinstance(response, FetchResponse)
        reader.session_id = response.session_id
        reader.epoch = reader.epoch + 1 if response.session_id else 0
        if not response.session_id:
            reader.offsets.clear()
        return shown(response)

    def known(self) -> list[object]:
        """What the leader knows of its followers, and has asked for."""
        known: list[object] = [len(self.asked)]
        for index, partition in sorted(self.held.items()):
            followers = () if partition.leadership is None else partition.leadership.followers.values()
            known.append((index, partition.log.high_watermark))
            known += [(one.log_end_offset, one.log_start_offset, one.broker_epoch) for one in followers]
        return known


def shown(response: FetchResponse) -> list[object]:
    return [
        (
            part.partition_index,
            part.error_code,
            part.high_watermark,
            part.last_stable_offset,
            part.log_start_offset,
            part.diverging_epoch,
            part.current_leader,
            part.aborted_transactions,
            part.records.read() if part.records else b"",
        )
        for topic in response.responses
        for part in topic.partitions
    ]


@pytest.mark.parametrize("seed", range(12))
def test_answers_as_one_that_reads_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    reading = Log.read
    reads = 0

    def counted(log: Log, *args: Any, **options: Any) -> Any:
        nonlocal reads
        reads += 1
        return reading(log, *args, **options)

    monkeypatch.setattr(Log, "read", counted)
    stories, counts = [], []
    for naive in (False, True):
        world, story = World(tmp_path / str(naive), seed, naive=naive), []
        reads = 0
        for _ in range(400):
            if world.dice.random() < 0.3:
                world.happen()
            story.append((world.ask(world.dice.choice(world.readers)), world.known()))
        stories.append(story)
        counts.append(reads)
    for number, (fast, slow) in enumerate(zip(*stories, strict=True)):
        assert fast == slow, f"request {number}"
    assert counts[0] < counts[1] * 0.7


class Consumer:
    """Fetches partition ALONE with a session, and names it once."""

    def __init__(self, world: World, *, offset: int) -> None:
        self.world = world
        self.wanted = FetchPartition(partition=ALONE, fetch_offset=offset, partition_max_bytes=1_000)
        self.session_id = self.epoch = 0

    async def ask(self, **fields: Any) -> list[object]:
        topics = [FetchTopic(topic_id=TOPIC, partitions=[self.wanted])]
        request = FetchRequest(
            min_bytes=1,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[] if self.epoch else topics,
            **fields,
        )
        answer = fetch(self.world.context, request)
        response = answer if isinstance(answer, FetchResponse) else await answer
        self.session_id, self.epoch = response.session_id, self.epoch + 1
        return shown(response)


async def test_a_fetch_that_waited_in_vain_tells_what_its_first_look_saw(tmp_path: Path) -> None:
    """At its end the partition is as idle as at its beginning, but there is something that the client was not told."""
    world = World(tmp_path, 0, naive=False)
    partition = world.held[ALONE]
    partition.append(batch(b"a"), NOW, acks=1)
    partition.append(batch(b"b"), NOW, acks=1)
    consumer = Consumer(world, offset=2)
    await consumer.ask()
    assert await consumer.ask(max_wait_ms=5) == []
    partition.log.advance_log_start(1)
    assert len(await consumer.ask(max_wait_ms=5)) == 1
    assert await consumer.ask(max_wait_ms=5) == []


async def test_what_is_idle_for_one_is_not_so_for_another(tmp_path: Path) -> None:
    """A session that reads what is committed, and then all there is."""
    world = World(tmp_path, 0, naive=False)
    records = batch(b"t", base_sequence=0, is_transactional=True, producer_id=1, producer_epoch=0)
    world.held[ALONE].append(records, NOW, acks=1)
    consumer = Consumer(world, offset=0)
    await consumer.ask(isolation_level=1)
    assert await consumer.ask(isolation_level=1) == []
    assert await consumer.ask(isolation_level=1) == []
    assert len(await consumer.ask(isolation_level=0)) == 1
