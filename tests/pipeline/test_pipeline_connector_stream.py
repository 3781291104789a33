"""The stock connector's streaming side against Barnabas: sources, limits, data loss, topics that grow."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from support.processes import wait_until
from support.spark_topics import BASE_MS, Lab

BATCH_TIMEOUT_S = 60


class Collected:
    """What a stream gave, batch by batch; a checkpoint makes the next start go on where the last ended."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.batches: list[list[int]] = []

    @property
    def numbers(self) -> list[int]:
        return sorted(number for batch in self.batches for number in batch)

    def _add(self, rows: DataFrame, batch_id: int) -> None:
        self.batches.append(sorted(int(row.value) for row in rows.select("value").collect()))

    def start(self, rows: DataFrame, **trigger: object) -> StreamingQuery:
        writer = rows.writeStream.foreachBatch(self._add).option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()  # type: ignore[arg-type]

    def all_now(self, rows: DataFrame) -> list[int]:
        """Everything that is there now and was not read before."""
        before = len(self.batches)
        self.start(rows, availableNow=True).awaitTermination()
        return sorted(number for batch in self.batches[before:] for number in batch)


@pytest.fixture
def collected(tmp_path: Path) -> Collected:
    return Collected(tmp_path / "checkpoint")


def until(condition: Callable[[], bool], query: StreamingQuery, what: str) -> None:
    def holds() -> bool:
        assert query.isActive, query.exception()
        return condition()

    wait_until(holds, BATCH_TIMEOUT_S, what)


def test_a_stream_from_topic_to_topic_goes_on_from_its_checkpoint(lab: Lab, tmp_path: Path) -> None:
    source, target = lab.topic(partitions=2), lab.topic(partitions=2)

    def copy() -> None:
        rows = lab.stream(subscribe=source, includeHeaders="true").select("key", "value", "headers")
        writer = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", lab.bootstrap)
        writer = writer.option("topic", target).option("checkpointLocation", str(tmp_path / "copy"))
        writer.trigger(availableNow=True).start().awaitTermination()

    headers = (("trace", b"\x00\x01"), ("empty", b""))
    lab.send(source, range(50), partition=0, headers=headers)
    copy()
    lab.send(source, range(50, 100), partition=1, headers=headers)
    copy()
    copy()
    copied = lab.records(target)
    assert sorted(int(record.value or b"") for record in copied) == list(range(100))
    assert {record.headers for record in copied} == {headers}
    assert all(record.key == b"k" + (record.value or b"") for record in copied)


def test_assign_with_starting_offsets_and_at_most_so_many_offsets_per_trigger(lab: Lab, collected: Collected) -> None:
    topic = lab.topic(partitions=2)
    lab.send(topic, range(50), partition=0)
    lab.send(topic, range(100, 150), partition=1)
    options = {"assign": json.dumps({topic: [1]}), "startingOffsets": json.dumps({topic: {"1": 5}})}
    assert collected.all_now(lab.stream(**options, maxOffsetsPerTrigger="20")) == list(range(105, 150))
    assert [len(batch) for batch in collected.batches] == [20, 20, 5]


def test_a_stream_begins_at_a_time(lab: Lab, collected: Collected) -> None:
    topic = lab.topic(partitions=2)
    lab.send(topic, range(10), partition=0)
    lab.send(topic, range(10, 20), partition=1)
    times = json.dumps({topic: {"0": BASE_MS + 7_500, "1": BASE_MS + 18_000}})
    rows = lab.stream(subscribe=topic, startingOffsetsByTimestamp=times, minPartitions="3")
    assert collected.all_now(rows) == [8, 9, 18, 19]


def test_a_pattern_finds_topics_that_appear_while_it_runs(lab: Lab, collected: Collected) -> None:
    lab.send(lab.topic(suffix="-found"), range(5))
    query = collected.start(lab.stream(subscribePattern=f"{lab.name}.*-found"))
    try:
        until(lambda: len(collected.numbers) == 5, query, "the first topic")
        lab.send(lab.topic(suffix="-found"), range(5, 10))
        until(lambda: len(collected.numbers) >= 10, query, "the second topic")
    finally:
        query.stop()
    assert collected.numbers == list(range(10))


def test_a_topic_gains_partitions_in_mid_query(lab: Lab, collected: Collected) -> None:
    """A partition that appears begins at offset 0, whatever the query's starting offsets are."""
    topic = lab.topic()
    lab.send(topic, range(10))
    query = collected.start(lab.stream(subscribe=topic))
    try:
        until(lambda: len(collected.numbers) == 10, query, "the first partition")
        lab.add_partitions(topic, 3)
        lab.send(topic, range(10, 20), partition=2)
        lab.send(topic, range(20, 30), partition=0)
        lab.send(topic, range(30, 40), partition=1)
        until(lambda: len(collected.numbers) >= 40, query, "all partitions")
        query.processAllAvailable()  # the rows come before Spark's note that they are done with
    finally:
        query.stop()
    assert collected.numbers == list(range(40))
    lab.send(topic, range(40, 45), partition=1)
    assert collected.all_now(lab.stream(subscribe=topic)) == list(range(40, 45))


def test_deleted_records_stop_a_query_that_must_not_lose_data(lab: Lab, collected: Collected) -> None:
    topic = lab.topic()
    lab.send(topic, range(10))
    assert collected.all_now(lab.stream(subscribe=topic)) == list(range(10))
    lab.send(topic, range(10, 30))
    lab.delete_records(topic, before=20)
    with pytest.raises(StreamingQueryException, match="failOnDataLoss"):
        collected.all_now(lab.stream(subscribe=topic, failOnDataLoss="true"))
    assert collected.numbers == list(range(10))
    assert collected.all_now(lab.stream(subscribe=topic, failOnDataLoss="false")) == list(range(20, 30))
    lab.send(topic, range(30, 33))
    assert collected.all_now(lab.stream(subscribe=topic, failOnDataLoss="true")) == [30, 31, 32]


def test_a_topic_made_anew_under_a_query_is_data_loss(lab: Lab, collected: Collected) -> None:
    topic = lab.topic()
    lab.send(topic, range(10))
    assert collected.all_now(lab.stream(subscribe=topic)) == list(range(10))
    lab.delete_topic(topic)
    lab.create(topic)
    lab.send(topic, range(100, 103))
    with pytest.raises(StreamingQueryException, match="failOnDataLoss"):
        collected.all_now(lab.stream(subscribe=topic))
