from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from pipeline.generators import Event


def text(event: Event) -> str | None:
    try:
        return None if event.value is None else event.value.decode()
    except UnicodeDecodeError:
        return None


def word_counts(events: Iterable[Event]) -> dict[str, int]:
    return dict(Counter(word for event in events for word in re.findall(r"[^\W_]+", (text(event) or "").lower())))


def malformed_lines(events: Iterable[Event]) -> list[Event]:
    return [event for event in events if text(event) is None]
