"""The files of a run: the values as JSON, and the chart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from bench import chart
from bench.model import Row, count_verdicts

RESULTS = Path(__file__).with_name("results")


def document(
    rows: Sequence[Row], machine: Mapping[str, Any], *, quick: bool, rounds: int, when: datetime
) -> dict[str, Any]:
    return {
        "date": when.isoformat(timespec="seconds"),
        "form": "quick" if quick else "full",
        "rounds": rounds,
        "machine": dict(machine),
        "verdicts": count_verdicts(rows),
        "rows": [row.as_json() for row in rows],
    }


def subtitle(machine: Mapping[str, Any], *, quick: bool, rounds: int, when: datetime) -> str:
    return (
        f"{when:%Y-%m-%d}, {'quick form, ' if quick else ''}median of {rounds} rounds on {machine['cores']} cores "
        f"({machine['cpu']}), {machine['memory_gb']:.0f} GB, Python {machine['python']}"
    )


def write(
    rows: Sequence[Row],
    machine: Mapping[str, Any],
    *,
    quick: bool,
    rounds: int,
    when: datetime,
    directory: Path = RESULTS,
) -> tuple[Path, Path]:
    """`<date>.json` (a quick run says so in its name, so that it never replaces a full one) and `latest.svg`."""
    directory.mkdir(parents=True, exist_ok=True)
    values = directory / f"{when:%Y-%m-%d}{'-quick' if quick else ''}.json"
    found = document(rows, machine, quick=quick, rounds=rounds, when=when)
    values.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    picture = directory / "latest.svg"
    title = f"Barnabas against Apache Kafka {machine['kafka']} and against the floor"
    picture.write_text(chart.render(rows, title, subtitle(machine, quick=quick, rounds=rounds, when=when)))
    return values, picture
