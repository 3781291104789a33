from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from naive.parsing import documents, malformed, window_start

from pipeline.generators import Event

METRIC = {"service": str, "metric": str, "value": int, "at": datetime}
LEVELS = {"DEBUG", "INFO", "WARN", "ERROR"}


class Line(NamedTuple):
    at: datetime
    level: str
    service: str
    message: str


def parse_line(value: bytes | None) -> Line | None:
    try:
        at, level, service, message = (value or b"").decode().split(" ", 3)
        return Line(datetime.fromisoformat(at), level, service, message) if level in LEVELS else None
    except ValueError:
        return None


def malformed_events(events: list[Event]) -> list[Event]:
    lines = [event for event in events if event.topic == "logs" and parse_line(event.value) is None]
    return lines + malformed(events, {"metrics": METRIC})


def lines(events: Iterable[Event]) -> list[Line]:
    parsed = (parse_line(event.value) for event in events if event.topic == "logs")
    return [line for line in parsed if line is not None]


def service_rates(events: Iterable[Event]) -> dict[tuple[str, str], tuple[int, int, float, float]]:
    """Per service and minute: lines, errors, lines per second, share of errors."""
    levels: dict[tuple[str, str], list[str]] = defaultdict(list)
    for line in lines(events):
        levels[line.service, window_start(line.at, 60)].append(line.level)
    return {
        key: (len(found), found.count("ERROR"), len(found) / 60, found.count("ERROR") / len(found))
        for key, found in levels.items()
    }


def error_budgets(events: Iterable[Event], slo: float) -> dict[str, tuple[int, int, float, float]]:
    """Per service: lines, errors, how many errors were allowed, the share of them that is left."""
    levels: dict[str, list[str]] = defaultdict(list)
    for line in lines(events):
        levels[line.service].append(line.level)
    budgets = {}
    for service, found in levels.items():
        errors, budget = found.count("ERROR"), len(found) * (1 - slo)
        budgets[service] = (len(found), errors, budget, 1 - errors / budget)
    return budgets


def percentiles(events: Iterable[Event]) -> dict[tuple[str, str, str], tuple[int, int, int, int]]:
    """Per service, metric and minute: samples, and the 50th, 95th and 99th percentile by nearest rank."""
    samples: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for sample in documents(events, "metrics", METRIC):
        samples[sample["service"], sample["metric"], window_start(sample["at"], 60)].append(sample["value"])
    return {
        key: (len(found), nearest_rank(found, 0.5), nearest_rank(found, 0.95), nearest_rank(found, 0.99))
        for key, found in samples.items()
    }


def nearest_rank(values: list[int], share: float) -> int:
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
