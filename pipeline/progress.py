"""What a query says of itself after each micro-batch: rows, rates, lag; a line on the terminal and one on file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

FILE_NAME = "progress.jsonl"


@dataclass(frozen=True)
class Progress:
    query: str
    batch_id: int
    time_s: float
    """When the batch began, as seconds since 1970."""
    duration_ms: int
    input_rows: int
    input_rate: float
    """Rows per second that arrived since the batch before, as Spark counts it."""
    processed_rate: float
    lag: int
    """Records at the end of this batch's offsets that are in the topics but not read yet."""
    late_rows: int
    """Rows that came after the watermark: known to the source, left out of windows."""
    state_rows: int


def from_spark(query: str, report: Mapping[str, Any]) -> Progress:
    """Spark's own report of a micro-batch, as its JSON says it."""
    state = report.get("stateOperators") or []
    began = datetime.fromisoformat(report["timestamp"].replace("Z", "+00:00"))
    return Progress(
        query=query,
        batch_id=int(report["batchId"]),
        time_s=began.timestamp(),
        duration_ms=int((report.get("durationMs") or {}).get("triggerExecution", 0)),
        input_rows=int(report.get("numInputRows") or 0),
        input_rate=_number(report.get("inputRowsPerSecond")),
        processed_rate=_number(report.get("processedRowsPerSecond")),
        lag=sum(_lag(source) for source in report.get("sources") or ()),
        late_rows=sum(int(operator.get("numRowsDroppedByWatermark", 0)) for operator in state),
        state_rows=sum(int(operator.get("numRowsTotal", 0)) for operator in state),
    )


def batch_progress(query: str, began_s: float, seconds: float, rows: int) -> Progress:
    """Of rows that were written at once, which Spark does not report by itself."""
    rate = rows / seconds if seconds > 0 else 0.0
    return Progress(query, 0, began_s, int(seconds * 1000), rows, rate, rate, 0, 0, 0)


def _number(value: Any) -> float:
    """Spark leaves rates out of the first batch, or says NaN or Infinity."""
    number = float(value or 0)
    return number if 0 <= number < float("inf") else 0.0


def _lag(source: Mapping[str, Any]) -> int:
    latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
    return sum(max(0, offset - end.get(partition, 0)) for partition, offset in latest.items())


def _offsets(given: Any) -> dict[tuple[str, str], int]:
    """{topic: {partition: offset}}, which only Kafka sources have; a string or a mapping, as Spark's version likes."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            return {}
    if not isinstance(given, Mapping):
        return {}
    return {
        (topic, partition): offset
        for topic, partitions in given.items()
        if isinstance(partitions, Mapping)
        for partition, offset in partitions.items()
    }


HEAD = f"{'query':<20} {'batch':>6} {'rows':>9} {'rows/s in':>10} {'rows/s':>9} {'lag':>9} {'late':>6} {'ms':>6}"


def line(progress: Progress) -> str:
    return (
        f"{progress.query:<20} {progress.batch_id:>6} {progress.input_rows:>9,} {progress.input_rate:>10,.0f}"
        f" {progress.processed_rate:>9,.0f} {progress.lag:>9,} {progress.late_rows:>6,} {progress.duration_ms:>6,}"
    )


RUN_BEGINS = "run"


def begin_run(path: Path, time_s: float) -> None:
    """Marks where another run of the same checkpoint begins: between two runs days may pass."""
    with open(path, "a") as file:
        file.write(json.dumps({RUN_BEGINS: time_s}) + "\n")


def append(path: Path, reports: Iterable[Progress]) -> None:
    with open(path, "a") as file:
        file.writelines(json.dumps(asdict(report)) + "\n" for report in reports)


def load(path: Path) -> list[list[Progress]]:
    """Each run's reports, without runs that had none. A line cut short by a crash is left out."""
    runs: list[list[Progress]] = [[]]
    for text in path.read_text().splitlines():
        try:
            loaded = json.loads(text)
        except ValueError:
            continue
        if RUN_BEGINS in loaded:
            runs.append([])
        else:
            runs[-1].append(Progress(**loaded))
    return [run for run in runs if run]
