"""Import from a database: the rows of a table, or of a query, become records of a topic.

A batch: it reads the rows that are there, writes them and ends. `table` may be a query in brackets with a name, to
import only what is new: `(SELECT * FROM orders WHERE id > 1000) AS fresh`. Values are JSON objects of the declared
`fields`, which are columns; a row in which one of them is null or does not fit its type goes to the dead-letter topic
as it was. The driver's jar goes to Spark with `--conf spark.jars=...`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.errors import BadSetting
from pipeline.generators.readings import FIELDS as READING
from pipeline.job import Context, Job, Output, Setting, Topic, TopicSink
from pipeline.jobs._columns import JDBC_SETTINGS, jdbc_properties, struct_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

URL = Setting("url", str, "jdbc:derby:export", "where the database is")
TABLE = Setting("table", str, "readings", "the table or query to read")
FIELDS = Setting("fields", str, READING, "the columns to import, as Spark DDL")
KEY = Setting("key", str, "sensor", "the column that becomes the key of the records")


def build(context: Context) -> list[Output]:
    from pipeline.topics import well_formed

    rows = context.spark.read.jdbc(context[URL], context[TABLE], properties=jdbc_properties(context))
    names = struct_of(context[FIELDS]).fieldNames()
    unknown = [name for name in names if name not in rows.columns]
    if unknown:
        raise BadSetting(f"{context[TABLE]} has no column {unknown[0]!r}; it has: {', '.join(rows.columns)}")
    if context[KEY] not in names:
        raise BadSetting(f"setting key={context[KEY]!r} is none of the fields: {', '.join(names)}")
    source = checked(rows, context[FIELDS], context[TABLE])
    context.sources[context[TABLE], ""] = source
    imported = well_formed(source).select("value.*")
    return [Output("records", imported, TopicSink("imported", key=context[KEY], value=names))]


def checked(rows: DataFrame, fields: str, table: str) -> DataFrame:
    """Rows with the columns of a topic's: the value is a struct of the fields, RAW holds the row as JSON."""
    from pyspark.sql import functions as F

    from pipeline.topics import COLUMNS, ERROR, RAW

    declared = struct_of(fields)
    cast = {field.name: F.col(field.name).try_cast(field.dataType) for field in declared}
    wrong = [
        F.when(
            F.col(field.name).isNotNull() & cast[field.name].isNull(),
            f"field {field.name} is no {field.dataType.simpleString()}",
        )
        for field in declared
    ]
    missing = [
        F.when(F.col(field.name).isNull(), f"field {field.name} is missing") for field in declared if not field.nullable
    ]
    as_json = F.to_json(F.struct(*rows.columns), {"ignoreNullFields": "false"}).cast("binary")
    no_bytes = F.lit(None).cast("binary")
    return rows.select(
        no_bytes.alias("key"),
        F.struct(*(cast[name].alias(name) for name in declared.fieldNames())).alias("value"),
        F.current_timestamp().alias("timestamp"),
        F.lit(None).cast("array<struct<key: string, value: binary>>").alias("headers"),
        F.lit(table).alias("topic"),
        F.lit(0).alias("partition"),
        F.lit(0).cast("long").alias("offset"),
        F.struct(no_bytes.alias("key"), as_json.alias("value")).alias(RAW),
        F.coalesce(*wrong, *missing, F.lit(None).cast("string")).alias(ERROR),
    ).select(*COLUMNS, RAW, ERROR)


JOB = Job(
    name="import-jdbc",
    build=build,
    writes=[Topic("imported", READING, "the rows")],
    settings=[URL, TABLE, FIELDS, KEY, *JDBC_SETTINGS],
)
