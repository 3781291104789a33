"""Topics as DataFrames: reading with a schema, telling malformed rows apart, and shaping rows into records."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pipeline.job import BYTES, FAIL_ON_DATA_LOSS, MAX_OFFSETS, STARTING_OFFSETS, TEXT, Context, Topic, TopicSink

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COLUMNS = ("key", "value", "timestamp", "headers", "topic", "partition", "offset")
ERROR = "_error"  # why a row is malformed, null when it is not
RAW = "_raw"  # key and value as they were
CORRUPT = "_corrupt"

GOES_ON = r"""_text NOT RLIKE r'^\s*\{[^{}]*\}\s*$'
    AND coalesce(size(from_json(concat('[', _text, ',0]'), 'array<string>')) != 2, true)"""
"""Spark's parser stops at the end of the first object; what follows would be lost without a word. As an element of an
array it must leave the next one alone. The pattern spares most rows this second look: one pair of braces around all."""


def read_topic(context: Context, topic: Topic, bootstrap_servers: str) -> DataFrame:
    """The topic as a stream, parsed, with ERROR and RAW beside the columns that a job sees."""
    name = context.topic_name(topic.name)
    # The connector looks for a pattern anywhere in a name; a person who says `lines` does not mean `my-lines-too`.
    chosen = ("subscribePattern", f"^(?:{name})$") if topic.pattern else ("subscribe", name)
    reader = (
        context.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option(*chosen)
        .option("startingOffsets", context[STARTING_OFFSETS])
        .option("failOnDataLoss", context[FAIL_ON_DATA_LOSS])
        .option("includeHeaders", "true")
    )
    if context[MAX_OFFSETS]:
        reader = reader.option("maxOffsetsPerTrigger", context[MAX_OFFSETS])
    return parse(reader.load(), topic)


def parse(rows: DataFrame, topic: Topic) -> DataFrame:
    """Rows of the connector with key and value decoded as `topic` declares; a batch's rows as well as a stream's."""
    from pyspark.sql import functions as F

    raw = rows.withColumn(RAW, F.struct("key", "value"))
    if topic.key == "text":
        raw = raw.withColumn("key", F.col("key").cast("string"))
    if topic.value == BYTES:
        errors: list[Column] = []
        parsed = raw
    else:
        raw = raw.withColumn("value", F.col("value").cast("string"))
        errors = [
            F.when(F.col("value").isNull(), "there is no value"),
            F.when(~F.is_valid_utf8(F.col("value")), "the value is not UTF-8"),
        ]
        parsed = raw
        if topic.value != TEXT:
            parsed, more = _parse_json(raw, topic.value)
            errors = [F.when(F.col(f"{RAW}.value").isNull(), "there is no value"), *more]
    if topic.check is not None:
        errors.append(F.when(~F.coalesce(F.expr(topic.check), F.lit(False)), f"not so: {topic.check}"))
    error = F.coalesce(*errors) if errors else F.lit(None).cast("string")
    return parsed.select(*COLUMNS, RAW, error.alias(ERROR))


def _parse_json(rows: DataFrame, ddl: str) -> tuple[DataFrame, list[Column]]:
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    fields = StructType.fromDDL(ddl)
    assert isinstance(fields, StructType), ddl
    schema = StructType([*fields, StructField(CORRUPT, StringType())])
    # FAILFAST would stop the query; this keeps the row and says so in CORRUPT.
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    parsed = rows.withColumnRenamed("value", "_text").withColumn("_object", F.from_json("_text", schema, options))
    unparsed = F.col("_object").isNull() | F.col(f"_object.{CORRUPT}").isNotNull()
    errors = [
        F.when(~F.is_valid_utf8(F.col("_text")), "the value is not UTF-8"),
        F.when(unparsed, "the value is no such JSON object"),
        F.when(F.expr(GOES_ON), "the value goes on after its JSON object"),
    ]
    for field in fields:
        if not field.nullable:
            missing = F.col("_object").getField(field.name).isNull()
            errors.append(F.when(missing, f"field {field.name} is missing"))
    return parsed.withColumn("value", F.col("_object").dropFields(CORRUPT)), errors


def well_formed(rows: DataFrame) -> DataFrame:
    return rows.where(f"{ERROR} IS NULL").select(*COLUMNS)


def dead_letters(sources: Sequence[DataFrame]) -> DataFrame:
    """Rows that did not parse, as records: key, value and headers as they were, and headers that say why and whence."""
    from pyspark.sql import functions as F

    def malformed(rows: DataFrame) -> DataFrame:
        def header(name: str, value: Column) -> Column:
            return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))

        own = F.array(
            header("barnabas.error", F.col(ERROR)),
            header("barnabas.topic", F.col("topic")),
            header("barnabas.partition", F.col("partition")),
            header("barnabas.offset", F.col("offset")),
        )
        headers = F.when(F.col("headers").isNull(), own).otherwise(F.concat("headers", own))
        return rows.where(f"{ERROR} IS NOT NULL").select(f"{RAW}.key", f"{RAW}.value", headers.alias("headers"))

    return reduce(lambda one, other: one.unionByName(other), [malformed(rows) for rows in sources])


def as_records(rows: DataFrame, sink: TopicSink, topic: str) -> DataFrame:
    """Rows as the columns that the connector's sink takes: topic, key, value, headers (more for our own)."""
    from pyspark.sql import functions as F

    def bytes_or_text(name: str) -> Column:
        return F.col(name) if dict(rows.dtypes)[name] == "binary" else F.col(name).cast("string").cast("binary")

    if isinstance(sink.value, str):
        value = bytes_or_text(sink.value)
    else:
        value = F.to_json(F.struct(*sink.value), {"ignoreNullFields": "false"}).cast("binary")
    columns = [value.alias("value"), (F.col(sink.topic_column) if sink.topic_column else F.lit(topic)).alias("topic")]
    if sink.key is not None:
        columns.append(bytes_or_text(sink.key).alias("key"))
    if sink.headers is not None:
        columns.append(F.col(sink.headers).alias("headers"))
    if sink.timestamp is not None:
        columns.append(F.unix_millis(F.col(sink.timestamp).cast("timestamp")).alias("timestamp_ms"))
    if sink.like is not None:
        columns.append(F.col(sink.like).alias("like"))
    if sink.partition is not None:
        columns.append(F.col(sink.partition).alias("partition"))
    return rows.select(*columns)
