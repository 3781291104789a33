"""kafka-python, the client that most Python programs use: 1 KB records, its default batches, one partition."""

from __future__ import annotations

import time

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from bench.lab import Broken, Lab, Side, Stopwatch
from bench.model import Case, Metric

RECORD_SIZE = 1000
TOPIC = "python-filled"
PATIENCE_S = 60


def _send(side: Side, topic: str, records: int) -> None:
    producer = KafkaProducer(bootstrap_servers=side.bootstrap, acks=1)
    value = bytes(range(250)) * (RECORD_SIZE // 250)
    for _ in range(records):
        producer.send(topic, value)
    producer.flush()
    producer.close()
    arrived = side.end_offsets(topic, 1)
    if arrived != records:
        raise Broken(f"{side.name}: {arrived} of {records} records arrived")


def produce(lab: Lab, side: Side) -> dict[str, float]:
    topic = lab.fresh_name("python")
    side.create_topic(topic)
    records = lab.size(60_000, 20_000)
    with Stopwatch(side) as watch:
        _send(side, topic, records)
    side.delete_topic(topic)
    return _result(records, watch.cost.seconds, watch.cost.cpu_seconds)


def prepare(lab: Lab, side: Side) -> None:
    records = lab.size(150_000, 50_000)
    lab.fill(side, TOPIC, 1, records, RECORD_SIZE)


def consume(lab: Lab, side: Side) -> dict[str, float]:
    records = lab.size(150_000, 50_000)
    consumer = KafkaConsumer(bootstrap_servers=side.bootstrap, enable_auto_commit=False)
    consumer.assign([TopicPartition(TOPIC, 0)])
    consumer.seek_to_beginning()
    found = 0
    deadline = time.monotonic() + PATIENCE_S
    with Stopwatch(side) as watch:
        while found < records:
            found += sum(len(part) for part in consumer.poll(timeout_ms=1000).values())
            if time.monotonic() > deadline:
                raise Broken(f"{side.name}: {found} of {records} records read")
    consumer.close()
    return _result(found, watch.cost.seconds, watch.cost.cpu_seconds)


def _result(records: int, seconds: float, cpu_seconds: float) -> dict[str, float]:
    size = records * RECORD_SIZE
    return {"throughput": size / 1e6 / seconds, "broker CPU": cpu_seconds / (size / 1e9)}


_METRICS = (Metric("throughput", "MB/s", "higher"), Metric("broker CPU", "s/GB", "lower"))

CASES: tuple[Case, ...] = (
    Case("kafka-python produce 1 KB", _METRICS, produce, quick=False),
    Case("kafka-python consume 1 KB", _METRICS, consume, prepare, quick=False),
)
