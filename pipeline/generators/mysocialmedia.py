"""Posts, likes and comments. A like may be seen before its post, and may come from someone who liked already."""

from __future__ import annotations

import random
from collections.abc import Iterator

from pipeline.generators import START_MS, Event
from pipeline.generators.noise import Document, iso, noisy

USERS = tuple(f"user-{number}" for number in range(40))


def events(seed: int, count: int, rate: float, start_ms: int = START_MS) -> Iterator[Event]:
    posts = 0

    def activity(rng: random.Random, at_ms: int) -> tuple[str, str, Document]:
        nonlocal posts
        user, chance = rng.choice(USERS), rng.random()
        if chance < 0.08 or posts == 0:
            post, posts = f"p{posts}", posts + 1
            document: Document = {"post": post, "user": user, "text": f"thought number {posts}", "at": iso(at_ms)}
            return "posts", post, document
        # Recent posts get most of the attention; now and then someone likes a post that has not been seen yet.
        post = f"p{posts}" if rng.random() < 0.02 else f"p{max(0, posts - 1 - int(rng.expovariate(1 / 4)))}"
        if chance < 0.7:
            return "likes", post, {"post": post, "user": user, "at": iso(at_ms)}
        comment = f"c{rng.getrandbits(40):010x}"
        return "comments", post, {"comment": comment, "post": post, "user": user, "text": "so true", "at": iso(at_ms)}

    return noisy(seed, count, rate, start_ms, activity)
