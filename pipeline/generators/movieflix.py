"""Positions that MovieFlix's players report every few seconds: who watches which show, and where they are in it."""

from __future__ import annotations

import random
from collections.abc import Iterator

from pipeline.generators import START_MS, Event
from pipeline.generators.noise import Document, iso, noisy

GENRES = ("drama", "comedy", "crime")
SHOWS = tuple(f"show-{number:02d}" for number in range(18))
USERS = 25
DURATION_S = 3_600


def events(seed: int, count: int, rate: float, start_ms: int = START_MS) -> Iterator[Event]:
    progress: dict[tuple[str, str], int] = {}

    def position(rng: random.Random, at_ms: int) -> tuple[str, str, Document]:
        number = rng.randrange(USERS)
        # Everyone has a taste: a run of shows that neighbours share in part, so that there is something to recommend.
        show_number = (number + rng.choice((0, 0, 0, 1, 1, 3))) % len(SHOWS)
        user, show = f"user-{number:03d}", SHOWS[show_number]
        forward = progress.get((user, show), 0) + rng.randint(5, 300)
        progress[user, show] = 0 if rng.random() < 0.1 else min(forward, DURATION_S)  # one in ten starts again
        document: Document = {
            "user": user,
            "show": show,
            "genre": GENRES[show_number % len(GENRES)],
            "position_s": progress[user, show],
            "at": iso(at_ms),
        }
        return "show-positions", user, document

    return noisy(seed, count, rate, start_ms, position)
