"""The same jobs on a standalone Spark cluster: a master and two workers as processes on the loopback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.broker_process import BrokerProcess
from support.spark import JVM_OPTIONS, JobRun, read_topic, send
from support.spark_processes import Driver, StandaloneCluster
from support.spark_topics import Lab

from pipeline import registry

CONF = {
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": JVM_OPTIONS,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Both executors are there before the first task, so that both get one.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    # The Python that the environment of the tests was made from: like a worker's, it has none of our packages.
    "spark.pyspark.python": str(sys._base_executable),  # type: ignore[attr-defined]
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    started = StandaloneCluster(tmp_path_factory.mktemp("cluster"))
    try:
        yield started
    finally:
        started.close()


def run_on(cluster: StandaloneCluster, run: JobRun) -> None:
    """The command that a user types, with the address of their cluster."""
    options = run.options()
    arguments = ["--bootstrap-server", run.bootstrap, "--checkpoint", options.checkpoint, "--master", cluster.url]
    arguments += ["--output", str(options.output), "--available-now"]
    for name, value in run.settings.items():
        arguments += ["--set", f"{name}={value}"]
    before = [len(cluster.executors_of(worker)) for worker in range(2)]
    driver = Driver(run.directory, run.job, *arguments, conf=CONF)
    try:
        assert driver.wait() == 0, driver.log
    finally:
        driver.close()
    assert [len(cluster.executors_of(worker)) for worker in range(2)] == [count + 1 for count in before]


def test_word_count_on_two_workers(
    spark: SparkSession, pipeline_broker: BrokerProcess, cluster: StandaloneCluster, tmp_path: Path
) -> None:
    run = JobRun(spark, pipeline_broker.bootstrap, tmp_path, "word-count", "cluster")
    sent = run.send(registry.generator("word-count")(5, 200, 10.0))
    run_on(cluster, run)
    on_cluster = {row["word"]: row["count"] for row in run.table("word_counts")}
    assert {word: row["count"] for word, row in run.last_by_key("word-counts").items()} == on_cluster
    local = JobRun(spark, pipeline_broker.bootstrap, tmp_path / "local", "word-count", "cluster-local")
    local.directory.mkdir()
    local.send(sent)
    local.run()
    assert on_cluster == {row["word"]: row["count"] for row in local.table("word_counts")}
    assert len(run.dead_letters()) == len(local.dead_letters()) > 0


def test_python_code_goes_to_workers_that_do_not_have_it(
    spark: SparkSession, lab: Lab, cluster: StandaloneCluster, tmp_path: Path
) -> None:
    """The mirror sends from Python workers, here to another topic of the same broker."""
    topic = lab.topic(2)
    events = send(lab.bootstrap, registry.generator("mirror")(6, 200, 4), {"readings": topic})
    settings = {"topic.readings": topic, "target_bootstrap_servers": lab.bootstrap, "source": "far"}
    run_on(cluster, JobRun(spark, lab.bootstrap, tmp_path, "mirror", "cluster", settings))
    mirrored = [(r.key, r.value, r.timestamp, r.headers) for r in read_topic(lab.bootstrap, f"far.{topic}")]
    assert sorted(map(repr, mirrored)) == sorted(repr((e.key, e.value, e.timestamp_ms, e.headers)) for e in events)
