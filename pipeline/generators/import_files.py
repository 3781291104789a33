"""Sensor readings as a file of lines in the directory that the job watches, late, repeated and broken ones included."""

from __future__ import annotations

import csv
import io
import itertools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import BadSetting
from pipeline.generators import Event
from pipeline.generators.readings import COLUMNS, columns, events

if TYPE_CHECKING:
    from pipeline.registry import Sessions

__all__ = ["deliver", "events"]


def deliver(made: Iterable[Event], settings: Mapping[str, Any], sessions: Sessions) -> str:
    """Written under a name that Spark overlooks, then renamed: a running job sees all of a file or nothing."""
    kind = settings["format"]
    if kind not in ("json", "csv"):
        raise BadSetting(f"files are generated as json or csv, not as {kind!r}; the job export-files makes the others")
    lines = [json_line(event) for event in made] if kind == "json" else csv_lines(made)
    directory = Path(settings["path"])
    directory.mkdir(parents=True, exist_ok=True)
    path = next(p for n in itertools.count() if not (p := directory / f"readings-{n}.{kind}").exists())
    hidden = path.with_name(f".{path.name}")
    hidden.write_bytes(b"".join(line + b"\n" for line in lines))
    os.replace(hidden, path)
    return f"{len(lines) - (kind == 'csv'):,} lines written to {path}"


def json_line(event: Event) -> bytes:
    """The value as it is; a malformed one may hold the end of a line, which would make it two."""
    return (event.value or b"").replace(b"\n", b" ").replace(b"\r", b" ")


def csv_lines(made: Iterable[Event]) -> list[bytes]:
    """What was no JSON object with all fields is a row whose fields do not fit their types.

    In quotes, because text may be empty, which is not the same as missing.
    """

    def line(fields: Iterable[object]) -> bytes:
        text = io.StringIO()
        csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="").writerow(fields)
        return text.getvalue().encode()

    return [line(COLUMNS), *(line(columns(event)) for event in made)]
