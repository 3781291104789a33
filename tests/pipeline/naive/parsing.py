"""Events sorted into well-formed documents and malformed records, by the plainest means."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from pipeline.generators import Event

Document = dict[str, Any]
Fields = Mapping[str, type]
"""Names of the fields, all required, and what JSON value each has; `datetime` is text in ISO 8601."""


def parse(value: bytes | None, fields: Fields) -> Document | None:
    """The document, or None if it is malformed."""
    try:
        document = json.loads((value or b"").decode())
        if not isinstance(document, dict):
            return None
        return {name: field(document[name], kind) for name, kind in fields.items()}
    except (ValueError, KeyError, TypeError):
        return None


def field(value: object, kind: type) -> object:
    if kind is datetime:
        return datetime.fromisoformat(str(value))
    if not isinstance(value, kind):
        raise TypeError(value)
    return value


def documents(events: Iterable[Event], topic: str, fields: Fields) -> list[Document]:
    parsed = (parse(event.value, fields) for event in events if event.topic == topic)
    return [document for document in parsed if document is not None]


def malformed(events: Iterable[Event], shapes: Mapping[str, Fields]) -> list[Event]:
    return [event for event in events if event.topic in shapes and parse(event.value, shapes[event.topic]) is None]


def window_start(at: datetime, seconds: int) -> str:
    """The window of `seconds` that `at` is in, as the jobs write it."""
    start = int(at.timestamp()) // seconds * seconds
    return datetime.fromtimestamp(start, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
