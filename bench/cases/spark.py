"""Spark with its stock Kafka connector: reading two gigabytes of a topic as a DataFrame, and writing one.

The session runs in the benchmark's own process tree with one task per core, as `barnabas pipeline run` starts it, and
is the same for both brokers. Reading sums the lengths of all values, so that every record is fetched and looked at;
writing makes rows in memory and sends them with the sink's defaults (idempotent, acks=all). A round counts only if
every record was read, or arrived.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from support.spark_jars import connector_directory

from bench.lab import Broken, Lab, Side, Stopwatch
from bench.model import Case, Metric

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORD_SIZE = 1000
PARTITIONS = 6
HEAP = "2g"
_sessions: list[SparkSession] = []


def session(lab: Lab) -> SparkSession:
    """One for all rounds of a case: Spark's start and its compiler's warm-up are not the broker's."""
    if not _sessions:
        from pipeline.session import build_session

        conf = {"spark.driver.memory": HEAP, "spark.sql.warehouse.dir": str(lab.directory / "warehouse")}
        _sessions.append(build_session("bench", jars=str(connector_directory()), conf=conf))
    return _sessions[0]


def finish(lab: Lab, side: Side) -> None:
    while _sessions:
        _sessions.pop().stop()


@dataclass(frozen=True, slots=True)
class Reading:
    records: int
    quick_records: int

    def prepare(self, lab: Lab, side: Side) -> None:
        lab.fill(side, "spark-read", PARTITIONS, lab.size(self.records, self.quick_records), RECORD_SIZE)
        session(lab)

    def run(self, lab: Lab, side: Side) -> dict[str, float]:
        expected = lab.size(self.records, self.quick_records)
        reader = session(lab).read.format("kafka").option("kafka.bootstrap.servers", side.bootstrap)
        values = reader.option("subscribe", "spark-read").load().selectExpr("octet_length(value) AS size")
        with Stopwatch(side) as watch:
            (row,) = values.selectExpr("count(*) AS records", "sum(size) AS size").collect()
        if row.records != expected or row.size != expected * RECORD_SIZE:
            raise Broken(f"{side.name}: {row.records} of {expected} records read, {row.size} bytes")
        return figures(watch, row.size)


@dataclass(frozen=True, slots=True)
class Writing:
    records: int
    quick_records: int

    def prepare(self, lab: Lab, side: Side) -> None:
        session(lab)

    def run(self, lab: Lab, side: Side) -> dict[str, float]:
        expected = lab.size(self.records, self.quick_records)
        topic = lab.fresh_name("spark-write")
        side.create_topic(topic, PARTITIONS)
        rows = session(lab).range(expected).selectExpr(f"rpad(CAST(id AS STRING), {RECORD_SIZE}, 'x') AS value")
        writer = rows.write.format("kafka").option("kafka.bootstrap.servers", side.bootstrap).option("topic", topic)
        with Stopwatch(side) as watch:
            writer.save()
        arrived = side.end_offsets(topic, PARTITIONS)
        side.delete_topic(topic)
        if arrived != expected:
            raise Broken(f"{side.name}: {arrived} of {expected} records arrived")
        return figures(watch, expected * RECORD_SIZE)


def figures(watch: Stopwatch, size: int) -> dict[str, float]:
    return {"throughput": size / 1e6 / watch.cost.seconds, "broker CPU": watch.cost.cpu_seconds / (size / 1e9)}


def _metrics(target: float) -> tuple[Metric, ...]:
    return Metric("throughput", "MB/s", "higher", target), Metric("broker CPU", "s/GB", "lower")


_READING = Reading(2_000_000, 200_000)
_WRITING = Writing(1_000_000, 100_000)

CASES: tuple[Case, ...] = (
    Case("Spark reads 2 GB", _metrics(1.1), _READING.run, _READING.prepare, finish, quick=False),
    Case("Spark writes 1 GB", _metrics(1.0), _WRITING.run, _WRITING.prepare, finish, quick=False),
)
