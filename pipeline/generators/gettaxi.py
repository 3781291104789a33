"""Positions of taxis and of people looking for one. People crowd in the centre, taxis cruise further out."""

from __future__ import annotations

import random
from collections.abc import Iterator

from pipeline.generators import START_MS, Event
from pipeline.generators.noise import Document, iso, noisy

CENTRE_LAT, CENTRE_LON = 50.08, 14.43
TAXIS, USERS = 25, 80


def events(seed: int, count: int, rate: float, start_ms: int = START_MS) -> Iterator[Event]:
    return noisy(seed, count, rate, start_ms, position)


def position(rng: random.Random, at_ms: int) -> tuple[str, str, Document]:
    is_taxi = rng.random() < 0.4
    name = f"taxi-{rng.randrange(TAXIS)}" if is_taxi else f"user-{rng.randrange(USERS)}"
    spread = 0.02 if is_taxi else 0.008
    document: Document = {
        "id": name,
        "lat": round(rng.gauss(CENTRE_LAT, spread), 5),  # five decimals are a metre
        "lon": round(rng.gauss(CENTRE_LON, spread), 5),
        "at": iso(at_ms),
    }
    return "taxi-positions" if is_taxi else "user-positions", name, document
