"""Lines of a few words, Zipf-like; some repeated, some late, and a few whose bytes are no UTF-8."""

from __future__ import annotations

import random
from collections.abc import Iterator

from pipeline.generators import START_MS, Event

WORDS = ("the", "a", "of", "and", "to", "in", "log", "topic", "record", "offset", "broker", "leader", "epoch", "key")


def events(seed: int, count: int, rate: float, start_ms: int = START_MS) -> Iterator[Event]:
    chance = random.Random(seed)
    weights = [1 / rank for rank in range(1, len(WORDS) + 1)]
    line = b""
    for number in range(count):
        timestamp_ms = start_ms + int(number * 1000 / rate)
        kind = chance.random()
        if kind < 0.02:
            line_now = b"\xff\xfe broken " + str(number).encode()
        elif kind < 0.05 and line:
            line_now = line  # the producer sent it twice
        else:
            line_now = line = " ".join(chance.choices(WORDS, weights, k=chance.randint(1, 8))).encode()
        if chance.random() < 0.05:
            timestamp_ms -= chance.randrange(60_000)  # late
        yield Event("lines", None, line_now, timestamp_ms)
