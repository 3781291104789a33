"""A real Spark for tests: one session for the whole run, jobs run on it against a real broker, results read back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from pyspark import SparkContext
from pyspark.errors.exceptions import captured
from pyspark.sql import SparkSession
from support.spark_jars import connector_directory

from pipeline import registry, tables
from pipeline.generators import Event
from pipeline.job import Context
from pipeline.producer import Producer
from pipeline.progress import Progress
from pipeline.run import Run, RunOptions, create_topics
from pipeline.session import build_session

# The heap shares the machine with broker and tests; C1 only, because no test runs long enough to repay C2.
JVM_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
FAST = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.pollingDelay": "5ms",
    # Batches of a few hundred rows: one file of state per batch costs more than the rows.
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


Answers = Callable[..., Any]


def _of_spark_alone(translating: Callable[[Answers], Answers]) -> Callable[[Answers], Answers]:
    """pyspark translates the exceptions of every JVM that py4j talks to, by asking Spark's about them. Other tests of
    the same process have a JVM of their own, and Spark's knows nothing of its objects."""

    def of_spark_alone(original: Answers) -> Answers:
        translated = translating(original)

        def get_return_value(answer: str, gateway_client: object, *rest: object) -> object:
            gateway = SparkContext._gateway
            is_spark = gateway is not None and gateway._gateway_client is gateway_client
            return (translated if is_spark else original)(answer, gateway_client, *rest)

        return get_return_value

    return of_spark_alone


captured.capture_sql_exception = _of_spark_alone(captured.capture_sql_exception)


def start_session(directory: Path, master: str = "local[2]", **conf: str) -> SparkSession:
    settings = {**FAST, "spark.sql.warehouse.dir": str(directory / "warehouse"), **conf}
    settings.setdefault("spark.driver.defaultJavaOptions", f"{JVM_OPTIONS} -Dderby.system.home={directory}")
    return build_session("tests", master, jars=str(connector_directory()), conf=settings)


@dataclass(frozen=True)
class Record:
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def json(self) -> Any:
        return None if self.value is None else json.loads(self.value)


def send(bootstrap: str, events: Iterable[Event], names: Mapping[str, str] | None = None) -> list[Event]:
    """Sends events in order; `names` maps a job's topics to the test's own. The topics must exist."""
    sent = list(events)
    with Producer(bootstrap) as producer:
        for event in sent:
            topic = (names or {}).get(event.topic, event.topic)
            producer.send(topic, event.key, event.value, event.timestamp_ms, event.headers)
    return sent


def read_topic(bootstrap: str, topic: str) -> list[Record]:
    """Every record of a topic, by partition and offset; none of one that does not exist."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, group_id=None)
    try:
        partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
        if not partitions:
            return []
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        found: list[Record] = []
        while any(consumer.position(one) < ends[one] for one in partitions):
            for records in consumer.poll(timeout_ms=200).values():
                found += [
                    Record(r.topic, r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
                    for r in records
                ]
    finally:
        consumer.close()
    return sorted(found, key=lambda record: (record.partition, record.offset))


@dataclass
class JobRun:
    """One job with topics of its own on a shared broker: send, run (again), look at the results.

    Every topic of the job gets `prefix` before its name, so that tests share a broker without meeting.
    """

    spark: SparkSession
    bootstrap: str
    directory: Path
    job: str
    prefix: str
    settings: dict[str, str] = field(default_factory=dict)
    progress: list[Progress] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.declared = declared = registry.load(self.job)
        topics = [topic.name for topic in (*declared.reads, *declared.writes) if not topic.pattern]
        self.names = {name: f"{self.prefix}.{name}" for name in (*topics, declared.dead_letter_topic)}
        self.dead_letter_topic = declared.dead_letter_topic
        renamed = {f"topic.{name}": real for name, real in self.names.items()}
        self.settings = {**renamed, **self.settings}

    def context(self) -> Context:
        return Context(self.spark, self.declared, self.bootstrap, self.settings)

    def create_topics(self) -> None:
        create_topics(self.context())

    def send(self, events: Iterable[Event]) -> list[Event]:
        self.create_topics()
        return send(self.bootstrap, events, self.names)

    def generate(self, seed: int, count: int, rate: float = 10.0) -> list[Event]:
        """Events of the job's generator, sent; the test computes from them what it expects."""
        return self.send(registry.generator(self.job)(seed, count, rate))

    def options(self) -> RunOptions:
        return RunOptions(
            self.bootstrap,
            checkpoint=str(self.directory / "checkpoint"),
            output=str(self.directory / "output"),
            settings=self.settings,
            available_now=True,
        )

    def run(self, **more: str) -> None:
        """All there is now, from the checkpoint on, to the end; `more` are further settings."""
        self.settings |= more
        run = Run(self.spark, self.declared, self.options())
        run.start()
        run.follow(self.progress.append)

    def records(self, topic: str) -> list[Record]:
        return read_topic(self.bootstrap, self.names.get(topic, topic))

    def last_by_key(self, topic: str) -> dict[str, Any]:
        """A topic as the table it stands for: the last JSON value of each key."""
        return {(record.key or b"").decode(): record.json for record in self.records(topic)}

    def table(self, table: str) -> list[dict[str, Any]]:
        return tables.read_table(str(self.directory / "output" / f"{self.declared.name}.sqlite"), table)

    def files(self, path: str, format: str = "parquet") -> list[dict[str, Any]]:
        rows = self.spark.read.format(format).load(str(self.directory / "output" / path)).collect()
        return [row.asDict(recursive=True) for row in rows]

    def dead_letters(self) -> list[Record]:
        return self.records(self.dead_letter_topic)


@contextmanager
def session(directory: Path) -> Iterator[SparkSession]:
    made = start_session(directory)
    try:
        yield made
    finally:
        made.stop()
