"""Log lines of some services as text, and samples of their metrics as JSON."""

from __future__ import annotations

import random
from collections.abc import Iterator

from pipeline.generators import START_MS, Event
from pipeline.generators.noise import Document, broken_json, encode_json, iso, noisy

ERROR_SHARE = {"checkout": 0.004, "search": 0.03, "login": 0.0, "mail": 0.12}
MESSAGES = ("request served", "cache miss: reloaded", "retried once", "slow upstream [eu-1]")


def events(seed: int, count: int, rate: float, start_ms: int = START_MS) -> Iterator[Event]:
    return noisy(seed, count, rate, start_ms, observation, encode, spoil)


def observation(rng: random.Random, at_ms: int) -> tuple[str, str, Document]:
    service = rng.choice(sorted(ERROR_SHARE))
    if rng.random() < 0.5:
        metric = rng.choice(("latency_ms", "queue_length"))
        value = int(rng.lognormvariate(3, 1))
        return "metrics", service, {"service": service, "metric": metric, "value": value, "at": iso(at_ms)}
    level = "ERROR" if rng.random() < ERROR_SHARE[service] else rng.choice(("INFO", "INFO", "INFO", "WARN"))
    return "logs", service, {"at": iso(at_ms), "level": level, "service": service, "message": rng.choice(MESSAGES)}


def encode(document: Document) -> bytes:
    """A log line has the document's fields separated by blanks."""
    if "message" in document:
        return " ".join(str(document[name]) for name in ("at", "level", "service", "message")).encode()
    return encode_json(document)


def spoil(rng: random.Random, document: Document) -> bytes | None:
    if "message" not in document:
        return broken_json(rng, document)
    stack_trace = b"\tat org.example.Service.run(Service.java:42)"
    bad_time, bad_level = {**document, "at": "yesterday"}, {**document, "level": "VERBOSE"}
    return rng.choice((None, b"", b"\xff\xfe", stack_trace, encode(bad_time), encode(bad_level)))
