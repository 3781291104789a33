"""The broker's wall clock, in the unit that Kafka's protocol and files use."""

from __future__ import annotations

import time


def now_ms() -> int:
    return time.time_ns() // 1_000_000
