"""Transactions, and the thresholds customers set for alerts. Some never set one, some change theirs."""

from __future__ import annotations

import random
from collections.abc import Iterator

from pipeline.generators import START_MS, Event
from pipeline.generators.noise import Document, iso, noisy

ACCOUNTS = 30


def events(seed: int, count: int, rate: float, start_ms: int = START_MS) -> Iterator[Event]:
    return noisy(seed, count, rate, start_ms, bank_event)


def bank_event(rng: random.Random, at_ms: int) -> tuple[str, str, Document]:
    account = f"account-{rng.randrange(ACCOUNTS):03d}"
    if rng.random() < 0.06 and not account.endswith("7"):
        threshold = rng.randrange(5_000, 60_000, 500)
        return "thresholds", account, {"account": account, "threshold_cents": threshold, "at": iso(at_ms)}
    document: Document = {
        "id": f"x{rng.getrandbits(48):012x}",
        "account": account,
        "amount_cents": rng.randrange(500, 90_000, 500),  # on the grid of the thresholds: equal is not above
        "at": iso(at_ms),
    }
    return "transactions", account, document
