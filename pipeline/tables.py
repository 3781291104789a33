"""The keyed table: a SQLite database on the driver's disk, where a micro-batch counts once however often it is tried.

For read models and results small enough to look at. A batch's rows and its number are one transaction: Spark repeats a
batch after a crash with the same number, and the repetition finds the number and leaves the table alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUSY_TIMEOUT_S = 60  # several queries of a run write to one database; each holds it for a moment
LEDGER = "_batches"
_TYPES = {"boolean": "INTEGER", "tinyint": "INTEGER", "smallint": "INTEGER", "int": "INTEGER", "bigint": "INTEGER"}
_TYPES |= {"float": "REAL", "double": "REAL", "binary": "BLOB"}


def open_database(path: str) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)


def plain(rows: DataFrame) -> DataFrame:
    """Rows in SQLite's types: times and dates as ISO text in UTC, arrays, maps and structs as JSON."""
    from pyspark.sql import functions as F

    columns = []
    for name, kind in rows.dtypes:
        column = F.col(f"`{name}`")
        if kind.startswith(("array", "map", "struct")):
            column = F.to_json(column)
        elif kind not in _TYPES:
            column = column.cast("string")
        columns.append(column.alias(name))
    return rows.select(*columns)


def write_batch(
    path: str, table: str, keys: Sequence[str], rows: DataFrame, *, query: str, batch_id: int | None, replace: bool
) -> None:
    """Upserts `rows`; with `replace` they are the whole table from now on. Without a `batch_id` nothing is noted."""
    rows = plain(rows)
    upsert(path, table, keys, rows.dtypes, map(tuple, rows.collect()), query, batch_id, replace)


def upsert(
    path: str,
    table: str,
    keys: Sequence[str],
    columns: Sequence[tuple[str, str]],
    rows: Iterable[tuple[Any, ...]],
    query: str,
    batch_id: int | None,
    replace: bool,
) -> None:
    declared = ", ".join(f'"{name}" {_TYPES.get(kind, "TEXT")}' for name, kind in columns)
    keyed = ", ".join(f'"{key}"' for key in keys)
    others = [name for name, _ in columns if name not in keys]
    change = ", ".join(f'"{name}" = excluded."{name}"' for name in others)
    on_conflict = f"DO UPDATE SET {change}" if others else "DO NOTHING"
    with closing(open_database(path)) as database:
        database.execute("BEGIN IMMEDIATE")
        database.execute(f"CREATE TABLE IF NOT EXISTS {LEDGER} (query TEXT PRIMARY KEY, batch_id INTEGER NOT NULL)")
        database.execute(f'CREATE TABLE IF NOT EXISTS "{table}" ({declared}, PRIMARY KEY ({keyed}))')
        if batch_id is not None:
            done = database.execute(f"SELECT batch_id FROM {LEDGER} WHERE query = ?", (query,)).fetchone()
            if done is not None and done[0] >= batch_id:
                database.execute("ROLLBACK")
                return
            database.execute(f"INSERT OR REPLACE INTO {LEDGER} VALUES (?, ?)", (query, batch_id))
        if replace:
            database.execute(f'DELETE FROM "{table}"')
        marks = ", ".join("?" * len(columns))
        database.executemany(f'INSERT INTO "{table}" VALUES ({marks}) ON CONFLICT ({keyed}) {on_conflict}', rows)
        database.execute("COMMIT")


def forget_batches(path: str, query: str) -> None:
    """A query with a new checkpoint counts its batches from 0 again, so what was noted before must not stop it."""
    with closing(open_database(path)) as database:
        if database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (LEDGER,)).fetchone():
            database.execute(f"DELETE FROM {LEDGER} WHERE query = ?", (query,))


def read_table(path: str, table: str) -> list[dict[str, Any]]:
    """Every row of a keyed table, for tests and for programs that answer from it."""
    with closing(open_database(path)) as database:
        cursor = database.execute(f'SELECT * FROM "{table}"')
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor]
