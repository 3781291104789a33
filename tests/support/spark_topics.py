"""Topics of a test's own for the tests of the connector, and the connector's readers with its broker filled in."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from kafka import KafkaAdminClient
from pyspark.sql import DataFrame, SparkSession
from support.spark import Record, read_topic
from support.wire import Wire

from pipeline.producer import Headers, Producer
from pipeline.wire import Cluster
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic

BASE_MS = 1_767_225_600_000
_numbers = itertools.count(1)


class Lab:
    """A broker, a session, and verbs. Record n has the value `n`, the key `k<n>` and the time BASE_MS + n seconds."""

    def __init__(self, spark: SparkSession, bootstrap: str, name: str) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.port = int(bootstrap.rpartition(":")[2])
        self.name = name

    def topic(self, partitions: int = 1, suffix: str = "") -> str:
        name = f"{self.name}.{next(_numbers)}{suffix}"
        self.create(name, partitions)
        return name

    def create(self, name: str, partitions: int = 1) -> None:
        cluster = Cluster(self.bootstrap)
        cluster.create_topics([(name, partitions, {})])
        cluster.patiently(lambda: cluster.partitions(name))
        cluster.close()

    def send(self, topic: str, numbers: Iterable[int], partition: int = 0, headers: Headers = ()) -> None:
        with Producer(self.bootstrap) as producer:
            for n in numbers:
                time = BASE_MS + 1000 * n
                producer.send(topic, f"k{n}".encode(), str(n).encode(), time, headers, partition)

    def add_partitions(self, topic: str, total: int) -> None:
        with Wire(self.port) as wire:
            asked = CreatePartitionsTopic(name=topic, count=total, assignments=None)
            answer = wire.ask(CreatePartitionsRequest(topics=[asked], timeout_ms=10_000))
        assert [result.error_code for result in answer.results] == [0]

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        with Wire(self.port) as wire:
            asked = DeleteRecordsPartition(partition_index=partition, offset=before)
            topics = [DeleteRecordsTopic(name=topic, partitions=[asked])]
            answer = wire.ask(DeleteRecordsRequest(topics=topics, timeout_ms=10_000))
        assert answer.topics[0].partitions[0].error_code == 0

    def delete_topic(self, topic: str) -> None:
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        admin.delete_topics([topic])
        admin.close()

    def records(self, topic: str) -> list[Record]:
        return read_topic(self.bootstrap, topic)

    def batch(self, **options: Any) -> DataFrame:
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        return reader.options(**options).load()

    def stream(self, **options: Any) -> DataFrame:
        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        return reader.option("startingOffsets", "earliest").options(**options).load()


def numbers(rows: DataFrame) -> list[int]:
    """The record numbers, sorted."""
    return sorted(int(row.value) for row in rows.select("value").collect())
