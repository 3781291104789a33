"""Import from a database: the rows of a table, or of a query, become records of a topic.

A batch: it reads the rows that are there, writes them and ends. `table` may be a query in brackets with a name, to
import only what is new: `(SELECT * FROM orders WHERE id > 1000) AS fresh`. Values are JSON objects of all columns.
The driver's jar goes to Spark with `--conf spark.jars=...`.
"""

from __future__ import annotations

from pipeline.job import TEXT, Context, Job, Output, Setting, Topic, TopicSink
from pipeline.jobs._columns import JDBC_SETTINGS, jdbc_properties

URL = Setting("url", str, "jdbc:derby:export", "where the database is")
TABLE = Setting("table", str, "readings", "the table or query to read")
KEY = Setting("key", str, "sensor", "the column that becomes the key of the records")
COLUMNS = Setting("columns", str, "*", "the columns to import, separated by commas")


def build(context: Context) -> list[Output]:
    rows = context.spark.read.jdbc(context[URL], context[TABLE], properties=jdbc_properties(context))
    rows = rows.select(*(name.strip() for name in context[COLUMNS].split(",")))
    return [Output("records", rows, TopicSink("imported", key=context[KEY], value=rows.columns))]


JOB = Job(
    name="import-jdbc",
    build=build,
    writes=[Topic("imported", TEXT, "the rows, as JSON objects")],
    settings=[URL, TABLE, KEY, COLUMNS, *JDBC_SETTINGS],
)
