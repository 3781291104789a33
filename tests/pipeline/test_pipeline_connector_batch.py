"""The stock connector's batch side against Barnabas: every way to name topics and stretches of them, and the sink."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from support.spark_topics import BASE_MS, Lab, numbers

from pipeline.batch import read_between
from pipeline.job import Topic


def test_rows_are_written_and_read_back_with_keys_headers_and_partitions(lab: Lab) -> None:
    topic = lab.topic(partitions=3)
    rows = lab.spark.range(30).select(
        F.col("id").cast("string").alias("key"),
        F.concat(F.lit("value "), "id").alias("value"),
        (F.col("id") % 3).cast("int").alias("partition"),
        F.array(F.struct(F.lit("h").alias("key"), F.col("id").cast("string").cast("binary").alias("value"))).alias(
            "headers"
        ),
    )
    rows.write.format("kafka").option("kafka.bootstrap.servers", lab.bootstrap).option("topic", topic).save()
    expected = sorted((str(n), f"value {n}", n % 3, "h", str(n)) for n in range(30))
    assert expected == sorted(
        ((r.key or b"").decode(), (r.value or b"").decode(), r.partition, r.headers[0][0], r.headers[0][1].decode())
        for r in lab.records(topic)
    )
    read = lab.batch(subscribe=topic, includeHeaders="true")
    assert expected == sorted(
        (
            bytes(r.key).decode(),
            bytes(r.value).decode(),
            r.partition,
            r.headers[0].key,
            bytes(r.headers[0].value).decode(),
        )
        for r in read.collect()
    )
    assert "headers" not in lab.batch(subscribe=topic).columns


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_the_sink_may_compress(lab: Lab, codec: str) -> None:
    topic = lab.topic()
    rows = lab.spark.range(0, 200, 1, 1).select(F.col("id").cast("string").alias("value"))
    writer = rows.write.format("kafka").option("kafka.bootstrap.servers", lab.bootstrap).option("topic", topic)
    writer.option("kafka.compression.type", codec).option("kafka.linger.ms", "20").save()
    assert numbers(lab.batch(subscribe=topic)) == list(range(200))


def test_topics_by_list_by_pattern_and_by_partition(lab: Lab) -> None:
    one, two = lab.topic(partitions=2, suffix="-some"), lab.topic(suffix="-some")
    lab.send(one, range(10), partition=0)
    lab.send(one, range(10, 20), partition=1)
    lab.send(two, range(20, 30))
    assert numbers(lab.batch(subscribe=f"{one},{two}")) == list(range(30))
    assert numbers(lab.batch(subscribePattern=f"{lab.name}.*-some")) == list(range(30))
    assert numbers(lab.batch(subscribePattern=f"{lab.name}.*-none")) == []
    assert numbers(lab.batch(assign=json.dumps({one: [1], two: [0]}))) == list(range(10, 30))


def test_starting_and_ending_offsets_by_json(lab: Lab) -> None:
    topic = lab.topic(partitions=2)
    lab.send(topic, range(10), partition=0)
    lab.send(topic, range(10, 20), partition=1)

    def between(start: dict[str, int], end: dict[str, int]) -> list[int]:
        starting, ending = json.dumps({topic: start}), json.dumps({topic: end})
        return numbers(lab.batch(subscribe=topic, startingOffsets=starting, endingOffsets=ending))

    assert between({"0": 3, "1": -2}, {"0": 5, "1": -1}) == [3, 4, *range(10, 20)]
    assert between({"0": 10, "1": 9}, {"0": -1, "1": 10}) == [19]
    assert between({"0": -2, "1": 0}, {"0": 0, "1": 1}) == [10]


def test_starting_and_ending_offsets_by_timestamp(lab: Lab) -> None:
    """A look-up by time gives the first *record* at or after it; a start after all records is an error or the end."""
    topic = lab.topic(partitions=2)
    lab.send(topic, range(10), partition=0)
    lab.send(topic, range(10, 20), partition=1)

    def at(second: float) -> int:
        return BASE_MS + int(1000 * second)

    starting, ending = {"0": at(2.5), "1": at(10)}, {"0": at(6), "1": at(14.001)}
    rows = lab.batch(
        subscribe=topic,
        startingOffsetsByTimestamp=json.dumps({topic: starting}),
        endingOffsetsByTimestamp=json.dumps({topic: ending}),
    )
    assert numbers(rows) == [3, 4, 5, 10, 11, 12, 13, 14]
    rows = lab.batch(subscribe=topic, startingTimestamp=str(at(8)), endingTimestamp=str(at(12)))
    assert numbers(rows) == [8, 9, 10, 11]
    assert numbers(lab.batch(subscribe=topic, endingTimestamp=str(at(1000)))) == list(range(20))
    late = {"subscribe": topic, "startingTimestamp": str(at(15))}
    with pytest.raises(PySparkException):
        lab.batch(**late).collect()
    assert numbers(lab.batch(**late, startingOffsetsByTimestampStrategy="latest")) == list(range(15, 20))


def test_min_partitions_splits_a_partition_among_tasks(lab: Lab) -> None:
    topic = lab.topic()
    lab.send(topic, range(100))
    assert lab.batch(subscribe=topic).rdd.getNumPartitions() == 1
    split = lab.batch(subscribe=topic, minPartitions="4")
    assert split.rdd.getNumPartitions() == 4
    assert numbers(split) == list(range(100))


def test_a_stretch_of_a_topic_as_a_dataframe_with_sql_over_it(lab: Lab) -> None:
    topic = lab.topic(partitions=2)
    lab.send(topic, range(10), partition=0)
    lab.send(topic, range(10, 20), partition=1)

    def moment(second: int) -> datetime:
        return datetime.fromtimestamp(BASE_MS / 1000 + second, UTC)

    assert numbers(read_between(lab.spark, lab.bootstrap, topic)) == list(range(20))
    assert numbers(read_between(lab.spark, lab.bootstrap, topic, {0: 8}, {1: 2})) == [8, 9, 10, 11]
    assert numbers(read_between(lab.spark, lab.bootstrap, topic, moment(4), moment(11))) == [*range(4, 10), 10]
    assert numbers(read_between(lab.spark, lab.bootstrap, topic, moment(30))) == []
    read_between(lab.spark, lab.bootstrap, Topic(topic, "text", "numbers")).createOrReplaceTempView("numbers")
    (row,) = lab.spark.sql("SELECT count(*) AS n, sum(int(value)) AS total, min(key) AS first FROM numbers").collect()
    assert (row.n, row.total, row.first) == (20, 190, "k0")
