"""kill -9 in the middle of a stream of writes, twenty times over, on one data directory."""

from __future__ import annotations

import random

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from py4j.java_gateway import JavaGateway
from support.broker_process import BrokerProcess
from support.data_directory import DataDirectoryReader
from support.java_clients import JavaProducer
from support.tools import StockTools

ROUNDS = 20
RECORDS_PER_ROUND = 240
PARTITIONS = 2
TOPIC = "killed"
PAYLOAD = "x" * 600  # 20 rounds fill several of the smallest segments


def read_all(bootstrap: str, partition: int) -> tuple[list[int], list[int]]:
    """The offsets and the numbers of all records of a partition, from its first offset to its end."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest")
    where = TopicPartition(TOPIC, partition)
    consumer.assign([where])
    end = consumer.end_offsets([where])[where]
    offsets: list[int] = []
    numbers: list[int] = []
    while consumer.position(where) < end:
        for records in consumer.poll(timeout_ms=1000, max_records=5000).values():
            offsets += [record.offset for record in records]
            numbers += [int(record.value.split(b" ", 1)[0]) for record in records]
    consumer.close()
    return offsets, numbers


@pytest.mark.slow
def test_no_acknowledged_record_is_lost_or_doubled_by_kill_9(
    fresh_broker: BrokerProcess, jvm: JavaGateway, stock_tools: StockTools
) -> None:
    """One idempotent acks=all producer lives through all rounds and retries what was in flight.

    After each restart every record is there once, in order, at offsets without a gap, and those acknowledged before
    the kill are at the offsets that were acknowledged.
    """
    rng = random.Random(20)
    admin = KafkaAdminClient(bootstrap_servers=fresh_broker.bootstrap)
    admin.create_topics(
        {TOPIC: {"num_partitions": PARTITIONS, "configs": {"segment.bytes": "1048576"}}}, wait_for_metadata=True
    )
    admin.close()
    producer = JavaProducer(jvm, fresh_broker.bootstrap, batch_size="4096", compression_type="none")
    sent = [0] * PARTITIONS
    killed_in_flight = 0
    for round_number in range(ROUNDS):
        kill_at = rng.randrange(60, RECORDS_PER_ROUND - 60)
        futures: list[list[object]] = [[] for _ in range(PARTITIONS)]
        acknowledged: list[dict[int, int]] = []
        for number in range(RECORDS_PER_ROUND):
            partition = number % PARTITIONS
            position = sent[partition] + len(futures[partition])
            futures[partition].append(producer.send(TOPIC, partition, f"{position} {PAYLOAD}"))
            if number == kill_at:
                fresh_broker.kill()
                # Whatever is done now was acknowledged by the broker that is dead.
                acknowledged = [
                    {
                        sent[part] + index: future.get().offset()
                        for index, future in enumerate(futures[part])
                        if future.isDone()
                    }
                    for part in range(PARTITIONS)
                ]
        killed_in_flight += sum(len(done) for done in acknowledged) < kill_at + 1
        fresh_broker.start()
        producer.flush()
        for partition in range(PARTITIONS):
            sent[partition] += len(futures[partition])
            offsets, numbers = read_all(fresh_broker.bootstrap, partition)
            context = f"round {round_number}, partition {partition}"
            assert numbers == list(range(sent[partition])), context
            assert offsets == list(range(sent[partition])), context
            for number, offset in acknowledged[partition].items():
                assert offsets[number] == offset, context
            assert futures[partition][-1].get().offset() == sent[partition] - 1, context
    producer.close()
    assert killed_in_flight > ROUNDS // 4, "too few kills hit requests in flight: the test proves little"

    fresh_broker.stop()
    DataDirectoryReader(stock_tools, jvm, fresh_broker.data_dir).read_all()
