"""Export to a database: a topic's JSON values as rows of a table of any database with a JDBC driver, exactly once.

Without `keys` every record becomes a row of its own, told apart by its partition and offset. With `keys` (fields of the
value, separated by commas) the table holds the newest row of each key, as a compacted topic would. Values that do not
have the declared `fields` go to the dead-letter topic. The driver's jar goes to Spark with `--conf spark.jars=...`.
"""

from __future__ import annotations

from pipeline.generators.readings import FIELDS as READING
from pipeline.job import Context, JdbcSink, Job, Output, Setting, Topic
from pipeline.jobs._columns import JDBC_SETTINGS, KAFKA_COLUMNS, jdbc_properties, read_as

FIELDS = Setting("fields", str, READING, "the fields of the values, as Spark DDL")
URL = Setting("url", str, "jdbc:derby:export;create=true", "where the database is")
TABLE = Setting("table", str, "readings", "the table; it is made when it does not exist")
KEYS = Setting("keys", str, "", "fields that tell rows apart; none: every record is a row")


def build(context: Context) -> list[Output]:
    from pyspark.sql import functions as F

    rows = read_as(context, "readings", context[FIELDS]).selectExpr("value.*", *KAFKA_COLUMNS)
    keys = [name.strip() for name in context[KEYS].split(",") if name.strip()]
    sink = JdbcSink(context[URL], context[TABLE], keys or ("kafka_partition", "kafka_offset"), jdbc_properties(context))
    if not keys:
        return [Output("rows", rows, sink)]
    # Records of a key are in one partition, so the highest offset is the newest.
    newest = rows.groupBy(*keys).agg(F.max_by(F.struct(*rows.columns), "kafka_offset").alias("newest"))
    return [Output("rows", newest.select("newest.*"), sink, mode="update")]


JOB = Job(
    name="export-jdbc",
    build=build,
    reads=[Topic("readings", READING, "the topic to export")],
    settings=[FIELDS, URL, TABLE, KEYS, *JDBC_SETTINGS],
)
