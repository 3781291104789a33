"""Starts an output's query on its sink: the connector's, Spark's files, or a table that takes a batch once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline import jdbc, tables
from pipeline.errors import PipelineError
from pipeline.job import Context, FileSink, JdbcSink, Output, ParquetSink, TableSink, TopicSink
from pipeline.progress import Progress, batch_progress
from pipeline.topics import as_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True)
class Place:
    """Where a run keeps things: checkpoints anywhere Spark can write, tables on the driver's disk."""

    checkpoint: str
    output: str

    def checkpoint_of(self, output: Output) -> str:
        return f"{self.checkpoint.rstrip('/')}/checkpoints/{output.name}"

    def path(self, path: str) -> str:
        return path if path.startswith("/") or "://" in path else f"{self.output.rstrip('/')}/{path}"

    def database(self, job: str) -> str:
        output = self.output.removeprefix("file://")
        if "://" in output:
            raise PipelineError(f"keyed tables live on a local disk: give --output a local directory, not {output}")
        Path(output).mkdir(parents=True, exist_ok=True)
        return str(Path(output) / f"{job}.sqlite")


def start(context: Context, output: Output, place: Place, trigger: dict[str, Any]) -> StreamingQuery:
    """The running query of rows that stream."""
    if not context.has_checkpoint(place.checkpoint_of(output)):
        _forget_batches(context, output, place)
    return (
        _writer(context, output, place)
        .queryName(output.name)
        .outputMode(output.mode)
        .option("checkpointLocation", place.checkpoint_of(output))
        .trigger(**trigger)
        .start()
    )


def _writer(context: Context, output: Output, place: Place) -> DataStreamWriter:
    sink = output.sink
    if isinstance(sink, TopicSink):
        records = as_records(output.rows, sink, context.topic_name(sink.topic))
        servers = sink.bootstrap_servers or context.bootstrap_servers
        if sink.timestamp is None:
            return records.writeStream.format("kafka").option("kafka.bootstrap.servers", servers)
        return records.writeStream.foreachBatch(partial(_send_batch, servers, context.bootstrap_servers))
    if isinstance(sink, ParquetSink | FileSink):
        kind, options = (sink.format, sink.options or {}) if isinstance(sink, FileSink) else ("parquet", {})
        writer = output.rows.writeStream.format(kind).options(**options).option("path", place.path(sink.path))
        return writer.partitionBy(*sink.partition_by) if sink.partition_by else writer
    return output.rows.writeStream.foreachBatch(partial(_write_batch, context, output, place))


def _write_batch(context: Context, output: Output, place: Place, rows: DataFrame, batch_id: int | None) -> None:
    sink = output.sink
    if isinstance(sink, TableSink):
        path = place.database(context.job.name)
        whole = output.mode == "complete"
        tables.write_batch(path, sink.table, sink.keys, rows, query=output.name, batch_id=batch_id, replace=whole)
    else:
        assert isinstance(sink, JdbcSink), sink
        jdbc.write_batch(rows, sink, query=output.name, batch_id=batch_id)


def _forget_batches(context: Context, output: Output, place: Place) -> None:
    if isinstance(output.sink, TableSink):
        tables.forget_batches(place.database(context.job.name), output.name)
    elif isinstance(output.sink, JdbcSink):
        jdbc.forget_batches(context.spark, output.sink, output.name)


def write_once(context: Context, output: Output, place: Place) -> Progress:
    """Rows that do not stream, all at once. They are kept until they are counted, so that their source is read once."""
    sink, began_s = output.sink, time.time()
    if isinstance(sink, TopicSink) and sink.timestamp is not None:
        records = as_records(output.rows, sink, context.topic_name(sink.topic))
        written = send(records, sink.bootstrap_servers or context.bootstrap_servers, context.bootstrap_servers)
        return batch_progress(output.name, began_s, time.time() - began_s, written)
    rows = output.rows.persist()
    if isinstance(sink, TopicSink):
        to_topic = as_records(rows, sink, context.topic_name(sink.topic)).write.format("kafka")
        to_topic.option("kafka.bootstrap.servers", sink.bootstrap_servers or context.bootstrap_servers).save()
    elif isinstance(sink, ParquetSink | FileSink):
        kind, options = (sink.format, sink.options or {}) if isinstance(sink, FileSink) else ("parquet", {})
        writer = rows.write.format(kind).options(**options).mode("append")
        writer.partitionBy(*sink.partition_by).save(place.path(sink.path))
    else:
        _write_batch(context, output, place, rows, None)
    seconds, count = time.time() - began_s, rows.count()
    rows.unpersist()
    return batch_progress(output.name, began_s, seconds, count)


def _send_batch(bootstrap_servers: str, source_servers: str, rows: DataFrame, batch_id: int) -> None:
    send(rows, bootstrap_servers, source_servers)


def send(records: DataFrame, bootstrap_servers: str, source_servers: str) -> int:
    """The number of records sent by our own producer, a task per partition of the rows."""
    return int(records.rdd.mapPartitions(partial(send_rows, bootstrap_servers, source_servers)).sum())


def send_rows(bootstrap_servers: str, source_servers: str, rows: Iterable[Row]) -> Iterator[int]:
    """In a Python worker: rows with a time of their own leave through our producer."""
    from pipeline.producer import Producer

    with Producer(bootstrap_servers, like_topics_of=source_servers) as producer:
        for row in rows:
            record = row.asDict()
            topic = record["topic"]
            if record.get("like") is not None:
                producer.make_topic(topic, record["like"])
            headers = tuple((header.key, _bytes(header.value)) for header in record.get("headers") or ())
            key, value = _bytes(record.get("key")), _bytes(record["value"])
            producer.send(topic, key, value, record["timestamp_ms"], headers, preferred=record.get("partition"))
    yield producer.sent


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)
