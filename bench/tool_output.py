"""Reads what Apache Kafka's performance tools print."""

from __future__ import annotations

import re
from typing import NamedTuple

_PRODUCED = re.compile(
    r"(?P<records>\d+) records sent, (?P<rate>[\d.]+) records/sec \((?P<mb>[\d.]+) MB/sec\), "
    r"(?P<average>[\d.]+) ms avg latency, (?P<max>[\d.]+) ms max latency, "
    r"(?P<p50>\d+) ms 50th, (?P<p95>\d+) ms 95th, (?P<p99>\d+) ms 99th, (?P<p999>\d+) ms 99.9th"
)
_CONSUMED_FIELDS = 10


class Produced(NamedTuple):
    """The closing line of ProducerPerformance."""

    records: int
    records_per_s: float
    mb_per_s: float
    p99_ms: int


class Consumed(NamedTuple):
    """The line of ConsumerPerformance. `fetch_*` leave out the time until the group had its assignment."""

    mb: float
    records: int
    rebalance_ms: int
    fetch_ms: int
    fetch_mb_per_s: float
    fetch_records_per_s: float


def parse_produced(text: str) -> Produced:
    """Earlier lines report progress and carry no percentiles; the last line with percentiles counts."""
    lines = list(_PRODUCED.finditer(text))
    if not lines:
        raise ValueError(f"no closing line of ProducerPerformance in: {text[-500:]!r}")
    found = lines[-1]
    return Produced(int(found["records"]), float(found["rate"]), float(found["mb"]), int(found["p99"]))


def parse_consumed(text: str) -> Consumed:
    for line in reversed(text.splitlines()):
        fields = [part.strip() for part in line.split(",")]
        if len(fields) == _CONSUMED_FIELDS:
            mb, _, records, _, rebalance_ms, fetch_ms, fetch_mb, fetch_records = fields[2:]
            return Consumed(
                float(mb), int(records), int(rebalance_ms), int(fetch_ms), float(fetch_mb), float(fetch_records)
            )
    raise ValueError(f"no line of ConsumerPerformance in: {text[-500:]!r}")
