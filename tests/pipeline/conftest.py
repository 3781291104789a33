"""One Spark session and one broker for all tests of the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.broker_process import BrokerProcess
from support.spark import JobRun, session
from support.spark_topics import Lab


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """local[2], the stock connector; shared by all tests of the run."""
    with session(tmp_path_factory.mktemp("spark")) as made:
        yield made


@pytest.fixture(scope="session")
def pipeline_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A Barnabas that keeps events however old their timestamps are; tests use topics of their own."""
    server = BrokerProcess(tmp_path_factory.mktemp("pipeline-broker"), extra={"log.retention.ms": "-1"})
    try:
        server.start()
        yield server
        server.stop()
    finally:
        server.close()


@pytest.fixture
def job_run(
    spark: SparkSession, pipeline_broker: BrokerProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[..., JobRun]:
    """`job_run("word-count", min_length="3")`: a job with topics and directories of the test's own."""
    count = 0

    def made(job: str, **settings: str) -> JobRun:
        nonlocal count
        count += 1
        prefix = "".join(c if c.isalnum() else "-" for c in request.node.name)[:60] + f"-{count}"
        directory = tmp_path / f"{job}-{count}"
        directory.mkdir()
        return JobRun(spark, pipeline_broker.bootstrap, directory, job, prefix, dict(settings))

    return made


@pytest.fixture
def lab(spark: SparkSession, pipeline_broker: BrokerProcess, request: pytest.FixtureRequest) -> Lab:
    """Topics of the test's own, and the connector with the broker filled in."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:80]
    return Lab(spark, pipeline_broker.bootstrap, name)
