"""Tables where a micro-batch counts once: Spark repeats one after a crash, with the same number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipeline import jdbc, tables
from pipeline.errors import PipelineError, spark_says
from pipeline.job import JdbcSink

Rows = list[tuple[str, int]]
URL = "jdbc:derby:memory:pipeline_tables;create=true"


class Sqlite:
    def __init__(self, path: Path) -> None:
        self.path = str(path / "run.sqlite")

    def write(self, rows: Rows, batch_id: int | None, *, replace: bool = False) -> None:
        columns = [("word", "string"), ("count", "bigint")]
        tables.upsert(self.path, "words", ["word"], columns, rows, "query", batch_id, replace)

    def read(self) -> Rows:
        return sorted((row["word"], row["count"]) for row in tables.read_table(self.path, "words"))

    def forget(self) -> None:
        tables.forget_batches(self.path, "query")


class Jdbc:
    def __init__(self, spark: SparkSession, keys: tuple[str, ...] = ("word",), table: str = "words") -> None:
        self.spark = spark
        self.sink = JdbcSink(URL, table, keys)

    def write(self, rows: Rows, batch_id: int | None) -> None:
        made = self.spark.createDataFrame(rows, "word STRING, count BIGINT")
        jdbc.write_batch(made, self.sink, query=f"query-{self.sink.table}", batch_id=batch_id)

    def read(self) -> Rows:
        return sorted((row.word, row["count"]) for row in self.spark.read.jdbc(URL, self.sink.table).collect())

    def forget(self) -> None:
        jdbc.forget_batches(self.spark, self.sink, f"query-{self.sink.table}")


@pytest.fixture(params=["sqlite", "jdbc"])
def keyed(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Any:
    return Sqlite(tmp_path) if request.param == "sqlite" else Jdbc(spark)


def test_a_repeated_batch_changes_nothing_and_a_new_checkpoint_counts_again(keyed: Sqlite | Jdbc) -> None:
    keyed.write([("a", 1), ("b", 1)], 0)
    keyed.write([("a", 9), ("c", 9)], 0)
    assert keyed.read() == [("a", 1), ("b", 1)], "the repetition is left out as a whole"
    keyed.write([("b", 2), ("c", 1)], 1)
    assert keyed.read() == [("a", 1), ("b", 2), ("c", 1)], "rows replace those with their key"
    keyed.write([("a", 7)], 0)
    assert keyed.read() == [("a", 1), ("b", 2), ("c", 1)], "an older batch comes too late"
    keyed.forget()
    keyed.write([("a", 3)], 0)
    assert keyed.read() == [("a", 3), ("b", 2), ("c", 1)]


def test_in_complete_mode_a_batch_is_the_whole_table(tmp_path: Path) -> None:
    table = Sqlite(tmp_path)
    table.write([("a", 1), ("b", 1)], 0, replace=True)
    table.write([("b", 2)], 1, replace=True)
    assert table.read() == [("b", 2)]


def test_without_keys_rows_are_added(spark: SparkSession) -> None:
    table = Jdbc(spark, keys=(), table="log")
    for batch_id in (0, 0, 1):
        table.write([("a", batch_id)], batch_id)
    assert table.read() == [("a", 0), ("a", 1)]


def test_a_batch_that_fails_half_way_leaves_nothing_behind(spark: SparkSession) -> None:
    """The second statement of the transaction fails, on a table that demands what the rows do not have."""
    table = Jdbc(spark, table="strict")
    with jdbc.connection(spark, table.sink) as database:
        jdbc._execute(database, 'CREATE TABLE strict ("word" VARCHAR(10), "count" BIGINT CHECK ("count" < 100))')
    table.write([("a", 1)], 0)
    with pytest.raises(PipelineError, match="constraint"), spark_says("refused"):
        table.write([("a", 2), ("b", 1000)], 1)
    assert table.read() == [("a", 1)]
    table.write([("a", 2), ("b", 3)], 1)
    assert table.read() == [("a", 2), ("b", 3)], "the failed batch was not noted as done"


def test_mistakes_that_are_no_failure_of_spark_keep_their_traceback(spark: SparkSession) -> None:
    with pytest.raises(ZeroDivisionError), spark_says("divided"):
        print(1 / 0)
    with pytest.raises(PipelineError, match=r"read: .*no_such_column"), spark_says("read"):
        spark.range(1).select("no_such_column")
    with pytest.raises(PySparkException):
        spark.range(1).select("no_such_column")
