"""The benchmark's Spark cases, with a few records: they read and write all, and notice when some are missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.broker_process import BrokerProcess
from support.spark_topics import Lab as Topics

from bench.cases import CASES
from bench.cases import spark as cases
from bench.lab import Broken, Lab, Side
from pipeline.producer import Producer


def test_spark_reads_and_writes(
    spark: SparkSession, pipeline_broker: BrokerProcess, lab: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(bench: Lab, side: Side, topic: str, partitions: int, records: int, size: int) -> None:
        side.create_topic(topic, partitions)
        with Producer(side.bootstrap) as producer:
            for n in range(records):
                producer.send(topic, None, b"x" * size, n, partition=n % partitions)

    monkeypatch.setattr(Lab, "fill", fill)  # the stock producer needs a JVM of its own
    monkeypatch.setattr(cases, "_sessions", [spark])
    bench = Lab(tmp_path, quick=True, say=print)
    side = Side("barnabas", pipeline_broker)
    reading = cases.Reading(0, 50)
    reading.prepare(bench, side)
    for case in (reading, cases.Writing(0, 50)):
        values = case.run(bench, side)
        assert values["throughput"] > 0 and values["broker CPU"] >= 0
    with pytest.raises(Broken, match="50 of 60 records read, 50000 bytes"):
        cases.Reading(0, 60).run(bench, side)


def test_they_have_targets_and_are_not_part_of_the_quick_form() -> None:
    found = {case.name: (case.metrics[0].target, case.quick) for case in CASES if case in cases.CASES}
    assert found == {"Spark reads 2 GB": (1.1, False), "Spark writes 1 GB": (1.0, False)}
