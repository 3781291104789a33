r"""Import from files: the rows of JSON, CSV or Parquet files in a directory become records of a topic.

Files may be added while the job runs; each is read once. Values are JSON objects of the declared `fields`. Lines that
are no such row go to the dead-letter topic as they were (a row that only lacks a field, as Spark read it), with the
file's name. In CSV, null is a field with nothing in it or `\N`, and empty text a pair of quotes. `barnabas pipeline
generate import-files` and the job `export-files` make such files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.errors import BadSetting
from pipeline.generators.readings import FIELDS as READING
from pipeline.job import Context, Job, Output, Setting, Topic, TopicSink
from pipeline.jobs._columns import CSV_OPTIONS, struct_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FIELDS = Setting("fields", str, READING, "the fields of the rows, as Spark DDL")
FORMAT = Setting("format", str, "json", "json (an object per line), csv (with a header line) or parquet")
PATH = Setting("path", str, "export", "the directory that files appear in")
KEY = Setting("key", str, "sensor", "the field that becomes the key of the records")
TIMESTAMP = Setting("timestamp", str, "at", "the field that becomes the timestamp of the records")


def build(context: Context) -> list[Output]:
    from pipeline.topics import well_formed

    if context[FORMAT] not in ("json", "csv", "parquet"):
        raise BadSetting(f"setting format={context[FORMAT]!r} is not json, csv or parquet")
    source = lines(context) if context[FORMAT] == "json" else table_rows(context)
    context.sources[context[PATH], ""] = source
    names = struct_of(context[FIELDS]).fieldNames()
    rows = well_formed(source).select("value.*")
    return [Output("records", rows, TopicSink("imported", key=context[KEY], value=names, timestamp=context[TIMESTAMP]))]


def lines(context: Context) -> DataFrame:
    """JSON lines look like records of a topic, and are parsed as such."""
    from pipeline.topics import parse

    files = context.spark.readStream.format("text").load(context[PATH])
    return parse(as_records(files, "CAST(value AS BINARY)"), Topic("lines", context[FIELDS], "lines of a file"))


def table_rows(context: Context) -> DataFrame:
    """Rows of CSV or Parquet. What the CSV reader cannot take, it gives back as `_corrupt`."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType, StructField, StructType

    from pipeline.topics import ERROR, RAW

    fields = struct_of(context[FIELDS])
    reader = context.spark.readStream.format(context[FORMAT])
    if context[FORMAT] == "csv":
        nullable = [StructField(field.name, field.dataType) for field in fields]
        reader = reader.schema(StructType([*nullable, StructField("_corrupt", StringType())]))
        files = reader.options(**CSV_OPTIONS, columnNameOfCorruptRecord="_corrupt").load(context[PATH])
    else:
        files = reader.schema(fields).load(context[PATH]).withColumn("_corrupt", F.lit(None).cast("string"))
    missing = [
        F.when(F.col(field.name).isNull(), f"field {field.name} is missing") for field in fields if not field.nullable
    ]
    error = F.coalesce(F.when(F.col("_corrupt").isNotNull(), "the line is no such row"), *missing)
    row = F.struct(*fields.fieldNames())
    text = F.coalesce("_corrupt", F.to_csv(row)).cast("binary")
    shaped = files.select(row.alias("_row"), text.alias("_text"), error.alias(ERROR), "_metadata")
    return as_records(shaped, "_row", f"struct(CAST(NULL AS BINARY) AS key, _text AS value) AS {RAW}", ERROR)


def as_records(files: DataFrame, value: str, *more: str) -> DataFrame:
    """Rows of files with the columns of a topic's; the file's name stands for the topic."""
    return files.selectExpr(
        "CAST(NULL AS BINARY) AS key",
        f"{value} AS value",
        "_metadata.file_modification_time AS timestamp",
        "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
        "_metadata.file_path AS topic",
        "0 AS partition",
        "_metadata.file_block_start AS offset",
        *more,
    )


JOB = Job(
    name="import-files",
    build=build,
    writes=[Topic("imported", READING, "the records")],
    settings=[FIELDS, FORMAT, PATH, KEY, TIMESTAMP],
)
