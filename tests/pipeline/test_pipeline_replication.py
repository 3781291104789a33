"""Streaming queries over replicated topics while the brokers that lead them are killed: nothing lost, nothing twice."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from support.processes import wait_until
from support.quorum_cluster import QuorumCluster, combined
from support.report import Report
from support.spark import read_topic
from support.spark_topics import BASE_MS, Lab

from pipeline.producer import Producer

SOURCE, TARGET = "letters", "copies"
PARTITIONS = 3
TIMEOUT_S = 90
SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "2000",
}

# Spark's driver asks for offsets with Kafka's admin client, which waits its whole time (a minute) for a broker that it
# wanted to ask and that has left the metadata. Spark then asks anew; here it does so sooner.
PATIENCE = {"kafka.request.timeout.ms": "5000", "kafka.default.api.timeout.ms": "5000", "fetchOffset.numRetries": "12"}


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorumCluster]:
    made = QuorumCluster(tmp_path_factory.mktemp("replicated"), combined(3), extra=SETTINGS)
    try:
        made.start()
        yield made
    finally:
        made.close()


class Sender(threading.Thread):
    """Numbers, one after the other, a few to each partition at a time; a number counts once it is acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.bootstrap = bootstrap
        self.stopping = threading.Event()
        self.acknowledged = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with Producer(self.bootstrap) as producer:
                while not self.stopping.is_set():
                    for n in range(self.acknowledged, self.acknowledged + 10 * PARTITIONS):
                        producer.send(SOURCE, b"k%d" % n, b"%d" % n, BASE_MS + n, partition=n % PARTITIONS)
                    producer.flush()
                    self.acknowledged = producer.sent
                    self.stopping.wait(0.05)
        except BaseException as failure:
            self.failure = failure

    def stop(self) -> int:
        self.stopping.set()
        self.join(TIMEOUT_S)
        assert self.failure is None, self.failure
        return self.acknowledged


def read_by(query: StreamingQuery) -> int:
    """How far the last micro-batch came, over all partitions; a query that has ended fails the test."""
    assert query.isActive, query.exception()
    last = query.lastProgress
    return 0 if last is None else sum(json.loads(last.sources[0].endOffset or "{}").get(SOURCE, {}).values())


def test_queries_run_through_the_loss_of_leaders(
    spark: SparkSession, cluster: QuorumCluster, tmp_path: Path, report: Report
) -> None:
    """One query writes files, one another replicated topic, as an idempotent producer with acks=all. Twice the broker
    that leads partition 0 is killed with -9 and comes back; with local[2] a task that fails once would end its query,
    so what the sink wrote it wrote once.
    """
    with_all = cluster.bootstrap
    admin = KafkaAdminClient(bootstrap_servers=with_all)
    admin.create_topics([NewTopic(SOURCE, PARTITIONS, 3), NewTopic(TARGET, PARTITIONS, 3)])
    admin.close()
    cluster.await_isr(SOURCE, 1, 2, 3)
    cluster.await_isr(TARGET, 1, 2, 3)
    lab = Lab(spark, with_all, SOURCE)
    rows = lab.stream(subscribe=SOURCE, failOnDataLoss="true", **PATIENCE).selectExpr(
        "key", "value", "partition", "offset"
    )
    files = str(tmp_path / "files")
    to_files = rows.writeStream.format("parquet").option("path", files)
    to_topic = rows.select("key", "value").writeStream.format("kafka").option("topic", TARGET)
    to_topic = to_topic.option("kafka.bootstrap.servers", with_all)
    to_topic = to_topic.option("kafka.acks", "all").option("kafka.enable.idempotence", "true")
    sender = Sender(with_all)
    queries: list[StreamingQuery] = []
    sender.start()
    try:
        for name, writer in (("files", to_files), ("topic", to_topic)):
            checkpoint = str(tmp_path / f"checkpoint-{name}")
            queries.append(writer.option("checkpointLocation", checkpoint).trigger(processingTime="0 seconds").start())

        def await_rows(what: str) -> None:
            """Both queries have read what was acknowledged up to now."""
            wanted = sender.acknowledged + 1
            wait_until(lambda: all(read_by(query) >= wanted for query in queries), TIMEOUT_S, what)

        await_rows("the first micro-batches")
        victims = []
        for _ in range(2):
            victims.append(cluster.partitions(SOURCE)[0].leader)
            cluster.nodes[victims[-1]].kill()
            await_rows("records after the loss of a leader")
            assert sender.failure is None, sender.failure
            cluster.start([victims[-1]])
            cluster.await_isr(SOURCE, 1, 2, 3)
        assert len(set(victims)) == 2, "leadership had moved"
        count = sender.stop()
        wait_until(lambda: all(read_by(query) >= count for query in queries), TIMEOUT_S, "everything is read")
        for query in queries:
            query.processAllAvailable()
    finally:
        sender.stopping.set()
        for query in queries:
            query.stop()
    written = spark.read.parquet(files).selectExpr("int(string(value)) AS n", "partition", "offset").collect()
    assert sorted(row.n for row in written) == list(range(count))
    assert len({(row.partition, row.offset) for row in written}) == count
    assert sorted(int(record.value or b"") for record in read_topic(cluster.bootstrap, TARGET)) == list(range(count))
    report(f"{count} records through both queries, though leaders {victims} were killed")
