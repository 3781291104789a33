"""Sensor readings with headers, for the jobs that move records of any topic: ingestion, mirror, export."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from pipeline.generators import START_MS, Event
from pipeline.generators.noise import Document, iso, noisy

FIELDS = "sensor STRING NOT NULL, value BIGINT NOT NULL, note STRING NOT NULL, at TIMESTAMP NOT NULL"
COLUMNS = ("sensor", "value", "note", "at")
SENSORS = 15
NOTES = ("", "plain", 'a "quoted" word', "one, two", "Brücke", "back\\slash", "it's", "two\nlines")
"""Text with what writers of CSV, JSON and SQL stumble over."""


def events(seed: int, count: int, rate: float, start_ms: int = START_MS) -> Iterator[Event]:
    for number, event in enumerate(noisy(seed, count, rate, start_ms, reading)):
        trace = ("trace", f"{seed}-{number}".encode())
        # A header may have a null value, and a name may occur twice: both must survive a mirror.
        yield event._replace(headers=(trace, ("site", None), ("site", b"\x00\x01")) if number % 3 == 0 else (trace,))


def columns(event: Event) -> list[str | None]:
    """A reading as a row of text, for files and tables. What was malformed has a field that fits no number or time."""
    try:
        document = json.loads(event.value or b"")
        return [str(document[name]) for name in COLUMNS]
    except (ValueError, KeyError, TypeError):
        # The key is still right, and the rest stays recognisable, so that nothing can be lost unnoticed.
        return [(event.key or b"").decode(), "many", "malformed", iso(event.timestamp_ms)]


def reading(rng: random.Random, at_ms: int) -> tuple[str, str, Document]:
    sensor = f"sensor-{rng.randrange(SENSORS)}"
    document: Document = {
        "sensor": sensor,
        "value": rng.randrange(-400, 1_200),
        "note": rng.choice(NOTES),
        "at": iso(at_ms),
    }
    return "readings", sensor, document
