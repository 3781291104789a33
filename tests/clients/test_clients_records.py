"""kafka-python: producing and consuming with assigned partitions."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import MessageSizeTooLargeError
from support.scenario import Server

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
DEADLINE_S = 30


@contextlib.contextmanager
def producing(server: Server, **settings: Any) -> Iterator[KafkaProducer]:
    producer = KafkaProducer(bootstrap_servers=server.bootstrap, **settings)
    try:
        yield producer
    finally:
        producer.close()


@contextlib.contextmanager
def consuming(server: Server, *partitions: TopicPartition, **settings: Any) -> Iterator[KafkaConsumer]:
    consumer = KafkaConsumer(
        bootstrap_servers=server.bootstrap, group_id=None, auto_offset_reset="earliest", **settings
    )
    consumer.assign(list(partitions))
    try:
        yield consumer
    finally:
        consumer.close()


def take(consumer: KafkaConsumer, count: int) -> list[ConsumerRecord]:
    """Poll until `count` records are there; more than that is an error."""
    records: list[ConsumerRecord] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(records) < count and time.monotonic() < deadline:
        for batch in consumer.poll(timeout_ms=500).values():
            records += batch
    assert len(records) == count
    return records


@pytest.mark.parametrize("acks", [1, "all"])
@pytest.mark.parametrize("codec", CODECS)
def test_round_trip(server: Server, topic: str, codec: str | None, acks: int | str) -> None:
    sent = [
        (b"key-%d" % number if number % 3 else None, b"value-%d " % number * 40, [("n", b"%d" % number), ("e", b"")])
        for number in range(300)
    ]
    with producing(server, compression_type=codec, acks=acks, linger_ms=20, enable_idempotence=False) as producer:
        futures = [
            producer.send(topic, key=k, value=v, headers=h, timestamp_ms=1000 + i) for i, (k, v, h) in enumerate(sent)
        ]
        offsets = [future.get(DEADLINE_S).offset for future in futures]
    assert offsets == list(range(300))

    with consuming(server, TopicPartition(topic, 0)) as consumer:
        records = take(consumer, 300)
    assert [record.offset for record in records] == offsets
    assert [(record.key, record.value, list(record.headers)) for record in records] == sent
    assert [record.timestamp for record in records] == [1000 + number for number in range(300)]
    assert {record.timestamp_type for record in records} == {0}


def test_acks_0(server: Server, topic: str) -> None:
    with producing(server, acks=0, enable_idempotence=False) as producer:
        for number in range(50):
            producer.send(topic, b"%d" % number)
        producer.flush()
    with consuming(server, TopicPartition(topic, 0)) as consumer:
        assert [record.value for record in take(consumer, 50)] == [b"%d" % number for number in range(50)]


def test_tombstones_and_empty_values(server: Server, topic: str) -> None:
    with producing(server) as producer:
        producer.send(topic, key=b"k", value=None)
        producer.send(topic, key=b"", value=b"")
        producer.flush()
    with consuming(server, TopicPartition(topic, 0)) as consumer:
        assert [(record.key, record.value) for record in take(consumer, 2)] == [(b"k", None), (b"", b"")]


def test_log_append_time(server: Server, admin: KafkaAdminClient) -> None:
    name = f"append-time-{time.monotonic_ns()}"
    admin.create_topics({name: {"configs": {"message.timestamp.type": "LogAppendTime"}}}, wait_for_metadata=True)
    before = int(time.time() * 1000)
    with producing(server, compression_type="lz4") as producer:
        metadata = producer.send(name, b"v", timestamp_ms=1).get(DEADLINE_S)
    after = int(time.time() * 1000)
    assert before <= metadata.timestamp <= after
    with consuming(server, TopicPartition(name, 0)) as consumer:
        (record,) = take(consumer, 1)
    assert record.timestamp == metadata.timestamp
    assert record.timestamp_type == 1


def test_seek_and_positions(server: Server, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with producing(server, compression_type="zstd", linger_ms=50) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number)
        producer.flush()
    with consuming(server, partition) as consumer:
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 100}
        consumer.seek(partition, 57)  # in the middle of a compressed batch
        assert [record.offset for record in take(consumer, 43)] == list(range(57, 100))
        assert consumer.position(partition) == 100
        consumer.seek_to_beginning(partition)
        assert consumer.position(partition) == 0
        consumer.seek_to_end(partition)
        assert consumer.position(partition) == 100
        assert consumer.poll(timeout_ms=200) == {}


def test_out_of_range_resets_to_earliest(server: Server, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with producing(server) as producer:
        producer.send(topic, b"only").get(DEADLINE_S)
    with consuming(server, partition) as consumer:
        consumer.seek(partition, 1000)
        assert [record.value for record in take(consumer, 1)] == [b"only"]


def test_offsets_for_times(server: Server, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    now = int(time.time() * 1000)
    with producing(server, compression_type="gzip", linger_ms=50) as producer:
        for number in range(100):
            producer.send(topic, b"%d" % number, timestamp_ms=now + 10 * number)
        producer.flush()
    with consuming(server, partition) as consumer:
        for target, offset in ((0, 0), (now, 0), (now + 1, 1), (now + 500, 50), (now + 501, 51), (now + 990, 99)):
            found = consumer.offsets_for_times({partition: target})[partition]
            assert (found.offset, found.timestamp) == (offset, now + 10 * offset), target
        assert consumer.offsets_for_times({partition: now + 991}) == {partition: None}


def test_several_partitions(server: Server, admin: KafkaAdminClient) -> None:
    name = f"several-{time.monotonic_ns()}"
    admin.create_topics({name: {"num_partitions": 6}}, wait_for_metadata=True)
    partitions = [TopicPartition(name, number) for number in range(6)]
    with producing(server, linger_ms=20) as producer:
        assert producer.partitions_for(name) == set(range(6))
        for number in range(600):
            producer.send(name, b"%d" % number, partition=number % 6)
        producer.flush()
    with consuming(server, *partitions) as consumer:
        records = take(consumer, 600)
        assert consumer.end_offsets(partitions) == dict.fromkeys(partitions, 100)
    for number in range(6):
        values = [int(record.value) for record in records if record.partition == number]
        assert values == list(range(number, 600, 6))


def test_idempotent_producer(server: Server, topic: str, admin: KafkaAdminClient) -> None:
    with producing(server, enable_idempotence=True, acks="all", max_in_flight_requests_per_connection=5) as producer:
        futures = [producer.send(topic, b"%d" % number) for number in range(2000)]
        assert [future.get(DEADLINE_S).offset for future in futures] == list(range(2000))
        state = admin.describe_producers([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
    (active,) = state.active_producers
    assert active.producer_id >= 0
    assert active.last_sequence == 1999
    with consuming(server, TopicPartition(topic, 0)) as consumer:
        assert [int(record.value) for record in take(consumer, 2000)] == list(range(2000))


def test_a_waiting_consumer_gets_a_new_record(server: Server, topic: str) -> None:
    """A long poll is answered by the record's arrival, not by its own time limit."""
    with consuming(server, TopicPartition(topic, 0), fetch_max_wait_ms=20000) as consumer:
        assert consumer.poll(timeout_ms=300) == {}  # the fetch now waits at the broker
        with producing(server) as producer:
            begin = time.monotonic()
            producer.send(topic, b"news").get(DEADLINE_S)
            assert [record.value for record in take(consumer, 1)] == [b"news"]
        assert time.monotonic() - begin < 10


def test_small_fetch_limits_still_make_progress(server: Server, topic: str) -> None:
    """The first batch is returned even if it is larger than the limit."""
    with producing(server, linger_ms=0) as producer:
        for number in range(20):
            producer.send(topic, b"%d" % number * 5000).get(DEADLINE_S)
    limits = {"fetch_max_bytes": 1000, "max_partition_fetch_bytes": 100}
    with consuming(server, TopicPartition(topic, 0), **limits) as consumer:
        assert len(take(consumer, 20)) == 20


def test_a_batch_over_the_limit_is_refused(server: Server, admin: KafkaAdminClient) -> None:
    name = f"limited-{time.monotonic_ns()}"
    admin.create_topics({name: {"configs": {"max.message.bytes": "1000"}}}, wait_for_metadata=True)
    with producing(server, retries=0, enable_idempotence=False) as producer:
        with pytest.raises(MessageSizeTooLargeError):
            producer.send(name, b"x" * 2000).get(DEADLINE_S)
        assert producer.send(name, b"x" * 200).get(DEADLINE_S).offset == 0
