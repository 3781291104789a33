"""Made-up events to feed the jobs: `pipeline/generators/<module>.py` belongs to `pipeline/jobs/<module>.py`.

A generator is a module with

    def events(seed: int, count: int, rate: float, start_ms: int = START_MS) -> Iterator[Event]

pure Python, no clock, no global randomness: the same arguments give the same events, byte for byte. `rate` is events
per second of *event time*: it spaces the timestamps, which begin at `start_ms`. (How fast they are sent is the
sender's matter.) What makes streams hard is part of it: some events are late, some come twice, some are malformed.
`topic` is the name the job declares; the sender maps it to the user's. A job that reads no topic has a generator with a
`deliver` as well, which puts the events where that job looks for them.
"""

from __future__ import annotations

from typing import NamedTuple

START_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z, so that tests can name the windows they expect


class Event(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...] = ()
