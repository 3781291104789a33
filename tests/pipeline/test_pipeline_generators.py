"""Every generator: the same seed gives the same events, and late, repeated and malformed ones are among them."""

from __future__ import annotations

from collections import Counter

import pytest
from naive import gettaxi, logs_and_metrics, movieflix, mybank, mysocialmedia, readings, tweets, word_count
from naive.parsing import malformed

from pipeline import registry
from pipeline.generators import START_MS, Event
from pipeline.generators.noise import MAX_LATE_MS

COUNT, RATE = 1_000, 10.0
SHAPES = {
    "gettaxi": gettaxi.SHAPES,
    "movieflix": movieflix.SHAPES,
    "mybank": mybank.SHAPES,
    "mysocialmedia": mysocialmedia.SHAPES,
    "tweets": tweets.SHAPES,
}


def broken(job: str, events: list[Event]) -> list[Event]:
    if job == "word-count":
        return word_count.malformed_lines(events)
    if job == "logs-and-metrics":
        return logs_and_metrics.malformed_events(events)
    return malformed(events, SHAPES.get(job, readings.SHAPES))


@pytest.mark.parametrize("job", registry.names())
def test_seeded_with_late_repeated_and_malformed_events(job: str) -> None:
    generate = registry.generator(job)
    events = list(generate(1, COUNT, RATE))
    assert events == list(generate(1, COUNT, RATE)), "the same seed"
    assert events != list(generate(2, COUNT, RATE)), "another seed"
    assert events[:100] == list(generate(1, 100, RATE)), "a longer stream begins like a shorter one"
    assert len(events) == COUNT
    topics = {topic.name for topic in registry.load(job).reads} or {"readings"}
    assert {event.topic for event in events} == topics, "every topic of the job gets events, and no other"

    behind = [max(0, START_MS + int(n * 1000 / RATE) - event.timestamp_ms) for n, event in enumerate(events)]
    assert sum(lateness > 5_000 for lateness in behind) > COUNT // 50, "late events"
    assert max(behind) <= MAX_LATE_MS + 1000 * 30 / RATE, "but none later than the jobs' watermark allows"
    copies = Counter((event.topic, event.key, event.value) for event in events if event.value)
    assert any(times > 1 for times in copies.values()), "repeated events"
    assert COUNT // 100 < len(broken(job, events)) < COUNT // 5, "some malformed events"


@pytest.mark.parametrize("job", registry.names())
def test_start_and_rate_place_the_events_in_time(job: str) -> None:
    events = list(registry.generator(job)(1, 100, 2.0, START_MS + 1_000_000))
    newest = max(event.timestamp_ms for event in events)
    assert START_MS + 1_000_000 + 45_000 < newest <= START_MS + 1_000_000 + 49_500
