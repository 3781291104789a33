"""The shorter way of a fetch that repeats the one before: it must answer as the ordinary way does.

The naive twin is the ordinary way itself: a client that is content with one byte and with two in turn is never the
same twice.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from support.broker_process import BrokerProcess
from support.wire import Wire, batch

from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.uuids import Uuid

_names = itertools.count()
BATCHES = 40


def new_topic(wire: Wire, partitions: int = 1) -> tuple[str, Uuid]:
    name = f"fetch-repeat-{next(_names)}"
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    made = wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000)).topics[0]
    assert made.error_code == 0
    return name, made.topic_id


def produce(wire: Wire, topic: tuple[str, Uuid], count: int, partition: int = 0) -> None:
    for number in range(count):
        data = PartitionProduceData(index=partition, records=bytes(batch(b"%05d" % number * 20, b"second")))
        topics = [TopicProduceData(name=topic[0], topic_id=topic[1], partition_data=[data])]
        answer = wire.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics))
        assert answer.responses[0].partition_responses[0].error_code == 0


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.port) as wire:
        yield wire


@pytest.fixture
def topic(wire: Wire) -> tuple[str, Uuid]:
    made = new_topic(wire)
    produce(wire, made, BATCHES)
    return made


class Reader:
    """A consumer of one partition, with or without a session, alike every time or never."""

    def __init__(self, wire: Wire, topic: tuple[str, Uuid], *, session: bool, alike: bool, committed: bool) -> None:
        self.wire = wire
        self.topic = topic
        self.session_id, self.epoch = 0, 0 if session else -1
        self.alike = alike
        self.committed = committed
        self.asked = 0

    def fetch(self, offset: int, *, max_wait_ms: int = 0, version: int = 17) -> FetchResponse:
        self.asked += 1
        min_bytes = 1 if self.alike else 1 + self.asked % 2
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=300)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            isolation_level=1 if self.committed else 0,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic(topic=self.topic[0], topic_id=self.topic[1], partitions=[partition])],
        )
        response: FetchResponse = self.wire.ask(request, version)
        self.session_id = response.session_id
        if self.epoch >= 0:
            self.epoch += 1
        return response


def shown(response: FetchResponse) -> list[object]:
    return [
        response.error_code,
        [
            (
                topic.topic_id,
                part.partition_index,
                part.error_code,
                part.high_watermark,
                part.last_stable_offset,
                part.log_start_offset,
                part.aborted_transactions,
                part.preferred_read_replica,
                bytes(part.records or b""),
            )
            for topic in response.responses
            for part in topic.partitions
        ],
    ]


@pytest.mark.parametrize("session", [True, False])
@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("version", [13, 17])
def test_answers_as_the_ordinary_way_does(
    broker: BrokerProcess, topic: tuple[str, Uuid], session: bool, committed: bool, version: int
) -> None:
    """In order, out of order, at the end, beyond it, and on from the middle again."""
    offsets = [
        *range(0, 2 * BATCHES, 3),
        2 * BATCHES,
        2 * BATCHES,
        0,
        1,
        2,
        3,
        2 * BATCHES + 7,
        0,
        1,
        2,
        3,
        -5,
        4,
        5,
        6,
    ]
    answers = []
    for alike in (True, False):
        with Wire(broker.port) as wire:
            reader = Reader(wire, topic, session=session, alike=alike, committed=committed)
            answers.append([shown(reader.fetch(offset, version=version)) for offset in offsets])
    assert answers[0] == answers[1]
    assert any(part[2] == ErrorCode.OFFSET_OUT_OF_RANGE for answer in answers[0] for part in answer[1])  # type: ignore[attr-defined]


def test_versions_that_name_the_topic_go_the_ordinary_way(wire: Wire, topic: tuple[str, Uuid]) -> None:
    reader = Reader(wire, topic, session=False, alike=True, committed=False)
    assert [shown(reader.fetch(offset, version=12))[0] for offset in range(5)] == [0] * 5


def test_a_fetch_at_the_end_waits_and_is_answered_by_an_append(broker: BrokerProcess, topic: tuple[str, Uuid]) -> None:
    with Wire(broker.port) as wire, Wire(broker.port) as other:
        reader = Reader(wire, topic, session=True, alike=True, committed=False)
        for offset in range(6):
            reader.fetch(offset, max_wait_ms=8000)
        produce(other, topic, 1)
        last = reader.fetch(2 * BATCHES, max_wait_ms=8000)
        assert last.responses[0].partitions[0].high_watermark == 2 * BATCHES + 2


def test_what_changes_in_between_counts(broker: BrokerProcess, topic: tuple[str, Uuid]) -> None:
    with Wire(broker.port) as wire, Wire(broker.port) as admin:
        reader = Reader(wire, topic, session=True, alike=True, committed=False)
        for offset in range(6):
            reader.fetch(offset)
        part = DeleteRecordsPartition(partition_index=0, offset=20)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic[0], partitions=[part])], timeout_ms=5000)
        assert admin.ask(request).topics[0].partitions[0].error_code == 0
        assert reader.fetch(6).responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        for offset in range(20, 26):
            assert reader.fetch(offset).responses[0].partitions[0].log_start_offset == 20
        gone = admin.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic[0])], timeout_ms=5000))
        assert gone.responses[0].error_code == 0
        assert reader.fetch(26).responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_session_out_of_step_is_refused(broker: BrokerProcess, topic: tuple[str, Uuid]) -> None:
    with Wire(broker.port) as wire:
        reader = Reader(wire, topic, session=True, alike=True, committed=False)
        for offset in range(6):
            reader.fetch(offset)
        reader.epoch += 1
        session_id = reader.session_id
        assert reader.fetch(6).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        reader.session_id, reader.epoch = session_id, reader.epoch - 2
        assert reader.fetch(6).error_code == ErrorCode.NONE
        reader.session_id += 1
        assert reader.fetch(7).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_that_gains_and_loses_partitions(broker: BrokerProcess) -> None:
    """Another partition joins the session with a request of another shape; its data must come with the next fetch."""
    with Wire(broker.port) as wire, Wire(broker.port) as other:
        topic = new_topic(other, partitions=2)
        produce(other, topic, BATCHES)
        produce(other, topic, 3, partition=1)
        reader = Reader(wire, topic, session=True, alike=True, committed=False)
        for offset in range(6):
            reader.fetch(offset)
        joined = FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=300)
        request = FetchRequest(
            min_bytes=1,
            session_id=reader.session_id,
            session_epoch=reader.epoch,
            topics=[FetchTopic(topic_id=topic[1], partitions=[joined])],
        )
        wire.ask(request, 17)
        reader.epoch += 1
        both = reader.fetch(8)
        assert {part.partition_index for part in both.responses[0].partitions} == {0, 1}
        request.session_epoch, request.topics = reader.epoch, []
        request.forgotten_topics_data = [ForgottenTopic(topic_id=topic[1], partitions=[1])]
        wire.ask(request, 17)
        reader.epoch += 1
        for offset in range(9, 15):
            alone = reader.fetch(offset)
            assert [part.partition_index for part in alone.responses[0].partitions] == [0]


def test_a_session_that_changes_by_a_fetch_that_waits(broker: BrokerProcess) -> None:
    """A consumer pauses the partition it reads, waits for another in vain, and takes the first up again. That request
    has the same bytes as before, but it adds a partition to a session of another one, whose records were held back
    for as long as the first had more."""
    with Wire(broker.port) as wire, Wire(broker.port) as other:
        topic = new_topic(other, partitions=2)
        produce(other, topic, BATCHES)
        reader = Reader(wire, topic, session=True, alike=True, committed=False)
        for offset in range(6):
            reader.fetch(offset)
        idle = FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=300)
        change = FetchRequest(
            max_wait_ms=1,
            min_bytes=1,
            session_id=reader.session_id,
            session_epoch=reader.epoch,
            topics=[FetchTopic(topic_id=topic[1], partitions=[idle])],
            forgotten_topics_data=[ForgottenTopic(topic_id=topic[1], partitions=[0])],
        )
        wire.ask(change, 17)
        reader.epoch += 1
        produce(other, topic, 1, partition=1)
        both = reader.fetch(8)
        assert {part.partition_index for part in both.responses[0].partitions} == {0, 1}


def test_a_session_keeps_what_was_asked_last(broker: BrokerProcess) -> None:
    """A request that waits asks for larger pieces, then the usual one is repeated: what the session remembers from
    then on is the usual one."""
    with Wire(broker.port) as wire, Wire(broker.port) as other:
        topic = new_topic(other)
        produce(other, topic, BATCHES)
        reader = Reader(wire, topic, session=True, alike=True, committed=False)
        for offset in range(6):
            reader.fetch(offset)
        wanted = FetchPartition(partition=0, fetch_offset=2 * BATCHES, partition_max_bytes=100_000)
        request = FetchRequest(
            max_wait_ms=1,
            min_bytes=1,
            session_id=reader.session_id,
            session_epoch=reader.epoch,
            topics=[FetchTopic(topic_id=topic[1], partitions=[wanted])],
        )
        wire.ask(request, 17)
        reader.epoch += 1
        usual = reader.fetch(0).responses[0].partitions[0]
        request.topics, request.session_epoch = [], reader.epoch
        again = wire.ask(request, 17).responses[0].partitions[0]
        assert bytes(again.records) == bytes(usual.records)
