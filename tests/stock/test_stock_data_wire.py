"""Records, offsets and sessions asked for over raw connections, of Barnabas and of Apache Kafka 4.3.1: equal answers.

Codes, offsets and the bytes of the records that come back have to be the same, ids and texts aside.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import pytest
from support.anchor import AnchorKafka
from support.broker_process import BrokerProcess
from support.talk import Talk
from support.wire import OneRecord

from protocol.compression import Compression
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol.records import build_batch, compute_crc
from protocol.uuids import Uuid

pytestmark = pytest.mark.stock

FIRST_MS = 1_704_067_200_000
NO_TOPIC = Uuid(b"\7" * 16)


def produce(
    topic: str,
    records: bytes | bytearray | None,
    partition: int = 0,
    *,
    acks: int = 1,
    topic_id: Uuid = Uuid.ZERO,
    transactional_id: str | None = None,
) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])],
    )


def at(*times: int, key: bytes | None = b"k", **options: object) -> bytearray:
    """A batch of records with these timestamps."""
    return build_batch([OneRecord(b"value", key, FIRST_MS + time) for time in times], **options)  # type: ignore[arg-type]


def patched(position: int, code: str, value: int, made: bytearray | None = None) -> bytearray:
    """A good batch with one field changed and the CRC made right again, so that only that field is wrong."""
    made = at(0, 1) if made is None else made
    struct.pack_into(code, made, position, value)
    struct.pack_into(">I", made, 17, compute_crc(made))
    return made


def topic_with(talk: Talk, name: str, partitions: int = 1, **configs: str) -> Uuid:
    """`min_insync_replicas` stands for min.insync.replicas."""
    entries = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=entries)
    made = talk.wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    assert made.topics[0].error_code == 0, made
    topic_id = talk.create_topic(name, partitions)
    for partition in range(partitions):  # Apache Kafka's metadata shows partitions that it does not lead yet
        talk.until(fetch(name, from_offset(0, partition)), 12, _is_led)
    return topic_id


def _is_led(answer: FetchResponse) -> bool:
    return answer.responses[0].partitions[0].error_code == 0


BAD_BATCHES: dict[str, Callable[[], bytearray]] = {
    "wrong CRC": lambda: bytearray(at(0)[:-1] + b"\xff"),
    "magic 3": lambda: patched(16, ">b", 3),
    "magic 1": lambda: patched(16, ">b", 1),
    "magic 0": lambda: patched(16, ">b", 0),
    "magic -1": lambda: patched(16, ">b", -1),
    "more offsets than records": lambda: patched(23, ">i", 7),
    "fewer offsets than records": lambda: patched(23, ">i", 0),
    "count is negative": lambda: patched(57, ">i", -1),
    "count is nought": lambda: patched(57, ">i", 0),
    "count is too high": lambda: patched(57, ">i", 3),
    "base offset 5": lambda: patched(0, ">q", 5),
    "base offset -1": lambda: patched(0, ">q", -1),
    "leader epoch 9": lambda: patched(12, ">i", 9),
    "control batch": lambda: patched(21, ">h", 0x20),
    "log append time claimed": lambda: patched(21, ">h", 0x08),
    "unused attribute": lambda: patched(21, ">h", 0x80),
    "too large": lambda: build_batch([OneRecord(bytes(3000))]),
    "two batches": lambda: at(0) + at(1),
    "cut": lambda: at(0)[:-2],
    "cut in the header": lambda: at(0)[:40],
    "a few bytes": lambda: bytearray(b"xyz"),
    "a header's worth of noughts": lambda: bytearray(61),
    "rest behind it": lambda: at(0) + b"rest",
    "no bytes": bytearray,
    "length 3": lambda: patched(8, ">i", 3),
    "length -1": lambda: patched(8, ">i", -1),
    "sequence without producer": lambda: patched(53, ">i", 4),
    "producer without sequence": lambda: patched(43, ">q", 5_000),
    "producer without epoch": lambda: at(0, producer_id=5_000, producer_epoch=-1, base_sequence=0),
    "producer -2": lambda: at(0, producer_id=-2, producer_epoch=0, base_sequence=0),
}


def bad_batches(talk: Talk) -> None:
    topic_id = topic_with(talk, "bad-batches", max_message_bytes="2000")
    asked = [(label, 12) for label in BAD_BATCHES]
    asked += [(label, version) for label in ("wrong CRC", "no bytes", "too large", "magic 0") for version in (3, 7, 9)]
    for label, version in asked:
        answer = talk.wire.ask(produce("bad-batches", BAD_BATCHES[label]()), version)
        _without_log_start(answer)
        talk.note(f"{label} v{version}", answer)
    for label in ("wrong CRC", "too large", "more offsets than records"):
        talk.ask(label, produce("", BAD_BATCHES[label](), topic_id=topic_id), 13)
    talk.ask("read back", fetch("bad-batches"), 12)


def _without_log_start(answer: ProduceResponse) -> None:
    """Apache Kafka refuses some batches before it has looked for their log, Barnabas when it has."""
    for one in answer.responses[0].partition_responses:
        if one.error_code == ErrorCode.INVALID_RECORD:
            one.log_start_offset = -1


def strange_targets(talk: Talk) -> None:
    topic_with(talk, "targets", 2)
    for acks in (-1, 1, 0, 2, -2):
        if acks:
            talk.ask(f"acks {acks}", produce("targets", at(0), acks=acks), 9)
    for partition in (-1, 2, 2**31 - 1):
        talk.ask(f"partition {partition}", produce("targets", at(0), partition), 9)
    talk.ask("unknown", produce("targets-none", at(0)), 12)
    talk.ask("illegal", produce("targets/illegal", at(0)), 12)
    talk.ask("unknown id", produce("", at(0), topic_id=NO_TOPIC), 13)
    talk.ask("no id", produce("", at(0), topic_id=Uuid.ZERO), 13)
    talk.ask("internal", produce("__consumer_offsets", at(0)), 12)


def bounded_topics(talk: Talk) -> None:
    """Topics whose settings look at the records."""
    topic_with(talk, "compacted", cleanup_policy="compact")
    talk.ask("without key", produce("compacted", at(0, 1, key=None)), 9)
    talk.ask("with key", produce("compacted", at(0, 1)), 9)
    topic_with(talk, "on-time", message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000")
    talk.ask("too old", produce("on-time", at(0, 1)), 9)
    answer = talk.wire.ask(produce("on-time", at(10**12)), 9)
    answer.responses[0].partition_responses[0].record_errors = []  # Barnabas refuses the batch by its header
    talk.note("far away", answer)
    topic_with(talk, "stamped", message_timestamp_type="LogAppendTime")
    answer = talk.wire.ask(produce("stamped", at(0, 1)), 9)
    stamped = answer.responses[0].partition_responses[0]
    assert stamped.log_append_time_ms > FIRST_MS
    stamped.log_append_time_ms = 0
    talk.note("stamped", answer)
    for codec in Compression:
        topic_with(talk, f"to-{codec.name.lower()}", compression_type=_codec_name(codec))
        for sent in Compression:
            talk.ask(f"{sent.name} to {codec.name}", produce(f"to-{codec.name.lower()}", at(0, 5, compression=sent)), 9)
        wanted = [(0, time) for time in (-1, -2, -3, FIRST_MS, FIRST_MS + 3, FIRST_MS + 5, FIRST_MS + 6)]
        for one in wanted:
            talk.ask(f"offsets of {one[1]}", list_offsets(f"to-{codec.name.lower()}", one), 9)


def _codec_name(codec: Compression) -> str:
    return "uncompressed" if codec is Compression.NONE else codec.name.lower()


def idempotence(talk: Talk) -> None:
    topic_with(talk, "idempotent")
    wanted = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    producer = talk.until(wanted, 4, lambda answer: answer.error_code == 0).producer_id

    def sent(label: str, sequence: int, *, epoch: int = 0, count: int = 1, **options: object) -> None:
        made = at(*range(count), producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **options)
        answer = talk.wire.ask(produce("idempotent", made, acks=-1), 9)
        # Apache Kafka gives a duplicate its batch's timestamp as the time of the append, whoever set that.
        answer.responses[0].partition_responses[0].log_append_time_ms = -1
        talk.note(label, answer)

    sent("first", 0, count=2)
    sent("again", 0, count=2)
    sent("half of it again", 1)
    sent("gap", 3)
    for sequence in range(2, 8):
        sent(f"sequence {sequence}", sequence)
    sent("fifth from the end again", 3)
    sent("sixth from the end again", 2)
    sent("first again", 0, count=2)
    sent("new epoch, sequence 3", 3, epoch=1)
    sent("new epoch", 0, epoch=1)
    sent("old epoch", 8)
    sent("epoch 7", 0, epoch=7)
    sent("almost the last", 2**31 - 1, epoch=7)
    unknown = at(0, producer_id=10**15, producer_epoch=3, base_sequence=17)
    talk.ask("nobody knows", produce("idempotent", unknown), 9)
    talk.ask("and goes on", produce("idempotent", at(0, producer_id=10**15, producer_epoch=3, base_sequence=18)), 9)
    answer = talk.wire.ask(DescribeProducersRequest(topics=[TopicRequest(name="idempotent", partition_indexes=[0, 4])]))
    for state in answer.topics[0].partitions[0].active_producers:
        state.producer_id = -1 if state.producer_id == producer else state.producer_id
    talk.note("producers", answer)


def fetch(
    topic: str,
    *wanted: FetchPartition,
    topic_id: Uuid = Uuid.ZERO,
    session: tuple[int, int] = (0, -1),
    max_bytes: int = 2**31 - 1,
    committed: bool = False,
    forgotten: tuple[int, ...] = (),
) -> FetchRequest:
    partitions = list(wanted) or ([] if session[1] > 0 else [from_offset(0)])
    gone = ForgottenTopic(topic=topic, topic_id=topic_id, partitions=list(forgotten))
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=max_bytes,
        isolation_level=int(committed),
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=partitions)] if partitions else [],
        forgotten_topics_data=[gone] if forgotten else [],
    )


def from_offset(
    offset: int, partition: int = 0, *, max_bytes: int = 2**20, epoch: int = -1, last: int = -1
) -> FetchPartition:
    return FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=max_bytes,
        current_leader_epoch=epoch,
        last_fetched_epoch=last,
    )


def fetches(talk: Talk) -> None:
    topic_id = topic_with(talk, "fetched", 3)
    for number in range(4):
        talk.ask("produce", produce("fetched", at(number, number + 1, number + 2)), 9)
    talk.ask("produce", produce("fetched", at(0, 0), 1), 9)
    for offset in (0, 1, 2, 3, 11, 12, 13, -1, -2, 10**15):
        talk.ask(f"from {offset}", fetch("fetched", from_offset(offset)), 12)
    for limit in (0, 1, 90, 91, 200):
        talk.ask(f"partition limit {limit}", fetch("fetched", from_offset(1, max_bytes=limit)), 12)
        talk.ask(f"limit {limit}", fetch("fetched", from_offset(1), from_offset(0, 1), max_bytes=limit), 12)
    two = (from_offset(0, max_bytes=1), from_offset(0, 1, max_bytes=1), from_offset(0, 2))
    talk.ask("only the first may be too large", fetch("fetched", *two), 12)
    talk.ask("empty first", fetch("fetched", *reversed(two)), 12)
    talk.ask("committed", fetch("fetched", from_offset(10), committed=True), 12)
    for epoch in (0, 1, 5):
        talk.ask(f"leader epoch {epoch}", fetch("fetched", from_offset(0, epoch=epoch)), 12)
        talk.ask(f"leader epoch {epoch}", fetch("", from_offset(0, epoch=epoch), topic_id=topic_id), 17)
        talk.ask(f"last epoch {epoch}", fetch("fetched", from_offset(3, last=epoch)), 12)
    talk.ask("last epoch beyond", fetch("fetched", from_offset(13, last=0)), 12)
    for version in (4, 5, 7, 11, 12):
        talk.ask("old", fetch("fetched", from_offset(9), from_offset(0, 9)), version)
        talk.ask("unknown", fetch("fetched-none", from_offset(9)), version)
        talk.ask("committed", fetch("fetched", from_offset(99), from_offset(2), committed=True), version)
    for version in (13, 15, 18):
        talk.ask("by id", fetch("", from_offset(9), from_offset(0, 9), topic_id=topic_id), version)
        talk.ask("unknown id", fetch("", from_offset(9), topic_id=NO_TOPIC), version)
        talk.ask("no id", fetch("", from_offset(9)), version)


def sessions(talk: Talk) -> None:
    topic_id = topic_with(talk, "session", 3)
    for partition in range(3):
        talk.ask("produce", produce("session", at(0, 1), partition), 9)
    wanted = [from_offset(2, partition) for partition in range(3)]
    first = talk.wire.ask(fetch("", *wanted, topic_id=topic_id, session=(0, 0)), 17)
    assert first.session_id > 0
    session = first.session_id
    talk.call("session", str(session))
    talk.note("opened", first)

    def asked(
        label: str, epoch: int, *changes: FetchPartition, forgotten: tuple[int, ...] = (), version: int = 17
    ) -> None:
        request = fetch("", *changes, topic_id=topic_id, session=(session, epoch), forgotten=forgotten)
        talk.ask(label, request, version)

    asked("nothing new", 1)
    talk.ask("produce", produce("session", at(5), 1), 9)
    asked("one is new", 2)
    asked("and still", 3)
    asked("read on", 4, from_offset(3, 1))
    asked("an error", 5, from_offset(99, 2))
    asked("still an error", 6)
    asked("well again", 7, from_offset(3, 2))
    asked("a partition that is not there", 8, from_offset(0, 7))
    asked("forgotten", 9, forgotten=(7, 0))
    talk.ask("produce", produce("session", at(5), 0), 9)
    asked("not asked for any more", 10)
    asked("wrong epoch", 3)
    asked("by name", 11, version=12)
    asked("all forgotten", 11, forgotten=(1, 2))
    asked("gone", 12)
    talk.ask("unknown session", fetch("", topic_id=topic_id, session=(session ^ 1, 4)), 17)
    talk.ask("closed", fetch("", from_offset(0), topic_id=topic_id, session=(session, -1)), 17)


def list_offsets(topic: str, *wanted: tuple[int, int], epoch: int = -1, committed: bool = False) -> ListOffsetsRequest:
    partitions = [
        ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
        for partition, timestamp in wanted
    ]
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=[ListOffsetsTopic(name=topic, partitions=partitions)],
        timeout_ms=5000,
    )


def offsets_by_time(talk: Talk) -> None:
    topic_with(talk, "timed", 2)
    for times in ((0, 10, 20), (5,), (40, 30), (35,)):
        talk.ask("produce", produce("timed", at(*times)), 9)
    special = range(-7, 0)
    for version in range(1, 12):
        for timestamp in special:
            for partition in (0, 1):
                talk.ask(f"time {timestamp}", list_offsets("timed", (partition, timestamp)), version)
    for time in (-1, 0, 1, 5, 10, 11, 20, 21, 30, 31, 35, 36, 40, 41):
        talk.ask(f"time {time}", list_offsets("timed", (0, FIRST_MS + time)), 9)
        talk.ask(f"time {time}, committed", list_offsets("timed", (0, FIRST_MS + time), committed=True), 9)
    for epoch in (0, 1, -2):
        talk.ask(f"epoch {epoch}", list_offsets("timed", (0, -1), epoch=epoch), 9)
    talk.ask("unknown", list_offsets("timed-none", (0, -1)), 9)
    for partition in (2, -1):
        talk.ask("unknown partition", list_offsets("timed", (partition, -1)), 9)
    wanted = [OffsetForLeaderPartition(partition=p, current_leader_epoch=c, leader_epoch=e)
        for p in (0, 1, 2) for c in (-1, 0, 1) for e in (-1, 0, 1)]  # fmt: skip
    for one in wanted:
        topics = [OffsetForLeaderTopic(topic="timed", partitions=[one])]
        for version in (2, 3, 4):
            talk.ask(f"end of {one}", OffsetForLeaderEpochRequest(replica_id=-2, topics=topics), version)


def deletions(talk: Talk) -> None:
    topic_with(talk, "shrinking")
    topic_with(talk, "shrinking-compacted", cleanup_policy="compact")
    topic_with(talk, "shrinking-both", cleanup_policy="compact,delete")
    for name in ("shrinking", "shrinking-compacted", "shrinking-both"):
        for number in range(3):
            talk.ask("produce", produce(name, at(number, number)), 9)

    def deleted(label: str, topic: str, offset: int, partition: int = 0) -> None:
        wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=5000)
        talk.ask(label, request, 2)

    for offset in (0, 3, 2, -2, 7, 99, -1):
        deleted(f"before {offset}", "shrinking", offset)
        for time in (-2, -4, -3, FIRST_MS):
            talk.ask(f"offset of {time}", list_offsets("shrinking", (0, time)), 9)
        for start in (0, 3, 6):
            talk.ask(f"fetch {start}", fetch("shrinking", from_offset(start)), 12)
    deleted("compacted", "shrinking-compacted", 1)
    deleted("both", "shrinking-both", 1)
    deleted("unknown", "shrinking-none", 1)
    deleted("unknown partition", "shrinking", 1, 4)
    deleted("internal", "__consumer_offsets", 0)
    talk.ask("produce", produce("shrinking", at(9)), 9)
    talk.ask("fetch", fetch("shrinking", from_offset(6)), 12)


SCENARIOS: dict[str, Callable[[Talk], None]] = {
    "bad batches": bad_batches,
    "strange targets": strange_targets,
    "bounded topics": bounded_topics,
    "idempotence": idempotence,
    "fetches": fetches,
    "sessions": sessions,
    "offsets by time": offsets_by_time,
    "deletions": deletions,
}


def transcript(scenario: Callable[[Talk], None], port: int) -> list[str]:
    with Talk(port) as talk:
        talk.find_coordinator("any")
        scenario(talk)
        return [re.sub(r"(session_id=)[1-9]\d*", r"\1<n>", line) for line in talk.lines]


@pytest.mark.parametrize("name", SCENARIOS)
def test_same_answers_as_apache_kafka(name: str, anchor: AnchorKafka, broker: BrokerProcess) -> None:
    theirs = transcript(SCENARIOS[name], anchor.port)
    ours = transcript(SCENARIOS[name], broker.port)
    assert ours == theirs
