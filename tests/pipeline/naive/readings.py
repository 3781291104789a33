"""What the jobs that move records of any topic are to give: ingestion, export, import."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime

from naive.parsing import Document, documents, window_start

from pipeline.generators import Event

READING = {"sensor": str, "value": int, "note": str, "at": datetime}
SHAPES = {"readings": READING}


def readings(events: Iterable[Event]) -> list[Document]:
    return documents(events, "readings", READING)


def newest_readings(events: Iterable[Event]) -> dict[str, Document]:
    """Per sensor, the reading that was sent last."""
    return {reading["sensor"]: reading for reading in readings(events)}


def records_per_minute(events: Iterable[Event]) -> dict[tuple[str, str], tuple[int, int]]:
    """Per topic and minute of the record's timestamp: records, bytes of their values."""
    sizes: dict[tuple[str, str], list[int]] = defaultdict(list)
    for event in events:
        minute = window_start(datetime.fromtimestamp(event.timestamp_ms / 1000, UTC), 60)
        sizes[event.topic, minute].append(len(event.value or b""))
    return {key: (len(found), sum(found)) for key, found in sizes.items()}
