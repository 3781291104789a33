"""The same job on a standalone Spark cluster: a master and two workers as processes on the loopback."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from support.broker_process import BrokerProcess
from support.spark import JobRun
from support.spark_processes import Driver, StandaloneCluster

from pipeline import registry


def test_word_count_on_two_workers(spark: SparkSession, pipeline_broker: BrokerProcess, tmp_path: Path) -> None:
    run = JobRun(spark, pipeline_broker.bootstrap, tmp_path, "word-count", "cluster")
    run.create_topics()
    sent = run.send(registry.generator("word-count")(5, 200, 10.0))
    cluster = StandaloneCluster(tmp_path)
    arguments = ["--bootstrap-server", pipeline_broker.bootstrap, "--checkpoint", str(tmp_path / "on-cluster")]
    arguments += ["--output", str(tmp_path / "output"), "--master", cluster.url, "--available-now"]
    for name, value in run.settings.items():
        arguments += ["--set", f"{name}={value}"]
    conf = {
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # Both executors are there before the first task, so that both get one.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    }
    driver = Driver(tmp_path, "word-count", *arguments, conf=conf)
    try:
        assert driver.wait() == 0, driver.log
        assert [len(cluster.executors_of(worker)) for worker in range(2)] == [1, 1]
    finally:
        driver.close()
        cluster.close()
    on_cluster = {row["word"]: row["count"] for row in run.table("word_counts")}
    assert {word: row["count"] for word, row in run.last_by_key("word-counts").items()} == on_cluster
    local = JobRun(spark, pipeline_broker.bootstrap, tmp_path / "local", "word-count", "cluster-local")
    local.directory.mkdir()
    local.send(sent)
    local.run()
    assert on_cluster == {row["word"]: row["count"] for row in local.table("word_counts")}
    assert len(run.dead_letters()) == len(local.dead_letters()) > 0
