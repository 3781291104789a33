"""Tweets with hashtags, likes and replies; most have few of either."""

from __future__ import annotations

import random
from collections.abc import Iterator

from pipeline.generators import START_MS, Event
from pipeline.generators.noise import Document, iso, noisy

USERS = ("klamm", "frieda", "olga", "amalia", "artur", "jeremias", "pepi", "momus")
HASHTAGS = ("#kafka", "#spark", "#castle", "#Kafka", "#data", "#python", "#Brücke")
WORDS = ("snow", "again", "the", "bridge", "inn", "file", "arrived", "nobody", "knows", "village", "#", "C#")


def events(seed: int, count: int, rate: float, start_ms: int = START_MS) -> Iterator[Event]:
    return noisy(seed, count, rate, start_ms, tweet)


def tweet(rng: random.Random, at_ms: int) -> tuple[str, str, Document]:
    text = rng.choices(WORDS, k=rng.randint(1, 6)) + rng.choices(HASHTAGS, k=rng.randint(0, 3))
    rng.shuffle(text)
    user = rng.choice(USERS)
    document: Document = {
        "id": f"t{rng.getrandbits(48):012x}",
        "user": user,
        "text": " ".join(text),
        "likes": int(rng.expovariate(1 / 6)),
        "replies": int(rng.expovariate(1 / 4)),
        "at": iso(at_ms),
    }
    return "tweets", user, document
