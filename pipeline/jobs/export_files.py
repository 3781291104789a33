"""Export to files: a topic's JSON values as rows of JSON, CSV or Parquet files, exactly once.

`fields` says what the values look like; other values go to the dead-letter topic. Each row also has the record's key,
timestamp, partition and offset, with the prefix `kafka_`. Read the directory with Spark: files that a crash left
unfinished are in it too, and its `_spark_metadata` says which ones count.
"""

from __future__ import annotations

from pipeline.errors import BadSetting
from pipeline.generators.readings import FIELDS as READING
from pipeline.job import Context, FileSink, Job, Output, ParquetSink, Setting, Topic
from pipeline.jobs._columns import CSV_OPTIONS, KAFKA_COLUMNS, read_as

FIELDS = Setting("fields", str, READING, "the fields of the values, as Spark DDL")
FORMAT = Setting("format", str, "json", "json, csv or parquet")
PATH = Setting("path", str, "export", "the directory of the files; a relative one lies in the run's output directory")


def build(context: Context) -> list[Output]:
    rows = read_as(context, "readings", context[FIELDS]).selectExpr("value.*", *KAFKA_COLUMNS)
    path, file_format = context[PATH], context[FORMAT]
    sink: FileSink | ParquetSink
    if file_format == "parquet":
        sink = ParquetSink(path)
    elif file_format in ("json", "csv"):
        sink = FileSink(path, file_format, options=CSV_OPTIONS if file_format == "csv" else None)
    else:
        raise BadSetting(f"setting format={file_format!r} is not json, csv or parquet")
    return [Output("files", rows, sink)]


JOB = Job(
    name="export-files",
    build=build,
    reads=[Topic("readings", READING, "the topic to export")],
    settings=[FIELDS, FORMAT, PATH],
)
