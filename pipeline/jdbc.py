"""Micro-batches into a relational database through JDBC, exactly once, with nothing but plain SQL.

Executors write a batch in parallel into a staging table. Then the driver moves it in one transaction that also notes
the batch's number: a batch that Spark repeats after a crash fills the staging table again and moves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pipeline.job import JdbcSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LEDGER = "barnabas_batches"
KEY_LENGTH = 1000  # of keys that are text; the least of what common databases allow is 4000 bytes


@contextmanager
def connection(spark: SparkSession, sink: JdbcSink) -> Iterator[Any]:
    """A java.sql.Connection, made by Spark so that drivers which came with `--packages` are found."""
    jvm: Any = spark._jvm
    options = {"url": sink.url, "dbtable": sink.table, **(sink.properties or {})}
    as_scala = jvm.PythonUtils.toScalaMap(options)
    made = jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(as_scala)
    opened = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(sink.url).createConnectionFactory(made).apply(-1)
    try:
        yield opened
    except BaseException:
        if not opened.getAutoCommit():
            opened.rollback()  # some drivers close nothing that is in a transaction
        raise
    finally:
        opened.close()


def write_batch(rows: DataFrame, sink: JdbcSink, *, query: str, batch_id: int | None) -> None:
    """Adds or replaces `rows`. Without a `batch_id` (a batch job's result) nothing is noted."""
    spark = rows.sparkSession
    staging = f"{sink.table}_{query}_staging".replace("-", "_")
    properties = dict(sink.properties or {}) | _key_types(rows, sink)
    rows.limit(0).write.jdbc(sink.url, sink.table, mode="ignore", properties=properties)  # makes it, if need be
    rows.write.jdbc(sink.url, staging, mode="overwrite", properties=properties)
    quoted = _quoted(spark, sink.url, rows.columns)
    with connection(spark, sink) as database:
        if not _exists(database, LEDGER):
            _execute(database, f"CREATE TABLE {LEDGER} (query VARCHAR(200) PRIMARY KEY, batch_id BIGINT)")
        database.setAutoCommit(False)
        if batch_id is None or _note(database, query, batch_id):
            if sink.keys:
                same = " AND ".join(f"{sink.table}.{quoted[key]} = s.{quoted[key]}" for key in sink.keys)
                _execute(database, f"DELETE FROM {sink.table} WHERE EXISTS (SELECT 1 FROM {staging} s WHERE {same})")
            names = ", ".join(quoted.values())
            _execute(database, f"INSERT INTO {sink.table} ({names}) SELECT {names} FROM {staging}")
        database.commit()
        database.setAutoCommit(True)
        _execute(database, f"DROP TABLE {staging}")


def _key_types(rows: DataFrame, sink: JdbcSink) -> dict[str, str]:
    """Text that must be compared cannot be a CLOB, which is what Spark makes of it in some databases."""
    kinds = dict(rows.dtypes)
    text = [f"`{key}` VARCHAR({KEY_LENGTH})" for key in sink.keys if kinds[key] == "string"]
    return {"createTableColumnTypes": ", ".join(text)} if text else {}


def _quoted(spark: SparkSession, url: str, names: Sequence[str]) -> dict[str, str]:
    """Names as this database wants them quoted, which is how Spark wrote them."""
    jvm: Any = spark._jvm
    dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(url)
    return {name: str(dialect.quoteIdentifier(name)) for name in names}


def forget_batches(spark: SparkSession, sink: JdbcSink, query: str) -> None:
    """A query with a new checkpoint counts its batches from 0 again, so what was noted before must not stop it."""
    with connection(spark, sink) as database:
        if _exists(database, LEDGER):
            _execute(database, f"DELETE FROM {LEDGER} WHERE query = ?", query)


def _note(database: Any, query: str, batch_id: int) -> bool:
    """Whether this batch is new; if so it is noted, in the caller's transaction."""
    statement = database.prepareStatement(f"SELECT batch_id FROM {LEDGER} WHERE query = ?")
    statement.setString(1, query)
    found = statement.executeQuery()
    done = found.getLong(1) if found.next() else None
    statement.close()
    if done is not None and done >= batch_id:
        return False
    _execute(database, f"DELETE FROM {LEDGER} WHERE query = ?", query)
    _execute(database, f"INSERT INTO {LEDGER} VALUES (?, {batch_id})", query)
    return True


def _exists(database: Any, table: str) -> bool:
    """Databases fold unquoted names to upper or lower case, each as it likes."""
    facts = database.getMetaData()
    for name in (table, table.upper(), table.lower()):
        found = facts.getTables(None, None, name, None)
        if found.next():
            return True
    return False


def _execute(database: Any, sql: str, *values: str) -> None:
    statement = database.prepareStatement(sql)
    for position, value in enumerate(values, 1):
        statement.setString(position, value)
    statement.executeUpdate()
    statement.close()
