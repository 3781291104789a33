"""What several jobs need: the rows of a topic by event time, windows as columns, and a schema given as a setting."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pipeline.job import Context, Setting

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

EVENT_TIME = "at"


def events(context: Context, topic: str) -> DataFrame:
    """The fields of the topic's JSON values, with the job's watermark on the event time `at`."""
    return context.watermark(context.read(topic).select("value.*"), EVENT_TIME)


def read_as(context: Context, topic: str, fields: str) -> DataFrame:
    """`context.read` for jobs that move any topic: the user says in a setting what the values look like."""
    from pipeline.topics import read_topic, well_formed

    source = read_topic(context, replace(context.job.topic(topic), value=fields), context.bootstrap_servers)
    context.sources[topic, context.bootstrap_servers] = source
    return well_formed(source)


def struct_of(fields: str) -> StructType:
    """Fields given as Spark DDL."""
    from pyspark.sql.types import StructType

    parsed = StructType.fromDDL(fields)
    assert isinstance(parsed, StructType)
    return parsed


def text_time(time: Column) -> Column:
    """A time as text that sorts by time and reads the same in JSON, SQLite and a terminal."""
    from pyspark.sql import functions as F

    return F.date_format(time, "yyyy-MM-dd'T'HH:mm:ss'Z'")


def distinct_count(column: Column) -> Column:
    """Streaming aggregations have no COUNT(DISTINCT); nulls do not count. Copies of an event do not count twice."""
    from pyspark.sql import functions as F

    return F.size(F.collect_set(column)).cast("long")


KAFKA_COLUMNS = (
    "key AS kafka_key",
    "timestamp AS kafka_timestamp",
    "partition AS kafka_partition",
    "offset AS kafka_offset",
)
"""What an exported row says about its record."""

CSV_OPTIONS = {
    "header": "true",
    "multiLine": "true",  # a quoted field may hold the end of a line
    "escape": '"',
    # By default Spark reads empty text back as null. A field with nothing in it, not even quotes, is null all the same.
    "nullValue": "\\N",
    # By default Spark's writer strips blanks, and text must come back as it was.
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}

JDBC_USER = Setting("user", str, "", "the database's user")
JDBC_PASSWORD = Setting("password", str, "", "that user's password")
JDBC_DRIVER = Setting("driver", str, "", "the class of the driver, where it does not register itself")
JDBC_SETTINGS = (JDBC_USER, JDBC_PASSWORD, JDBC_DRIVER)


def jdbc_properties(context: Context) -> dict[str, str]:
    return {setting.name: context[setting] for setting in JDBC_SETTINGS if context[setting]}
