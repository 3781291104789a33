"""Sensor readings as rows of a table whose columns are all text, as tables that programs dump into tend to be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pipeline.generators import Event
from pipeline.generators.readings import COLUMNS, columns, events

if TYPE_CHECKING:
    from pipeline.registry import Sessions

__all__ = ["deliver", "events"]

TEXT = "VARCHAR(1000)"


def deliver(made: Iterable[Event], settings: Mapping[str, Any], sessions: Sessions) -> str:
    rows = [columns(event) for event in made]
    url, table = settings["url"], settings["table"]
    properties = {name: settings[name] for name in ("user", "password", "driver") if settings[name]}
    properties["createTableColumnTypes"] = ", ".join(f"`{name}` {TEXT}" for name in COLUMNS)
    schema = ", ".join(f"`{name}` STRING" for name in COLUMNS)
    sessions().createDataFrame(rows, schema).write.jdbc(url, table, mode="append", properties=properties)
    return f"{len(rows):,} rows written to {table} of {url}"
