"""What real streams do to well-behaved events: some come late, some come twice, some are malformed.

Everything is drawn from the one seeded `random.Random` of a generator. Lateness is bounded: an event is at most
`MAX_LATE_MS` behind the stream's clock, and a copy follows its original within `COPY_WITHIN` events. From one event
per second on, that is less than the watermark delay of the jobs, so no job may drop any of them, however the stream is
cut into micro-batches: its result is a function of the events alone.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from pipeline.generators import Event

MAX_LATE_MS = 60_000
COPY_WITHIN = 30

LATE_SHARE = 0.06
COPY_SHARE = 0.04
BROKEN_SHARE = 0.04

Document = dict[str, object]
Draw = Callable[[random.Random, int], tuple[str, str, Document]]
"""Given the generator's randomness and an event time, the next event: topic, key, document."""
Spoil = Callable[[random.Random, Document], bytes | None]
"""A malformed value made of a good document."""


def iso(at_ms: int) -> str:
    """An event time as it stands in the documents: ISO 8601 in UTC, with milliseconds."""
    return datetime.fromtimestamp(at_ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{at_ms % 1000:03d}Z"


def encode_json(document: Document) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def noisy(
    seed: int,
    count: int,
    rate: float,
    start_ms: int,
    draw: Draw,
    encode: Callable[[Document], bytes] = encode_json,
    spoil: Spoil | None = None,
) -> Iterator[Event]:
    """`count` events of what `draw` makes, with late, repeated and malformed ones among them."""
    rng = random.Random(seed)
    break_it = spoil or broken_json
    recent: deque[Event] = deque(maxlen=COPY_WITHIN)
    for number in range(count):
        at_ms = start_ms + int(number * 1000 / rate)
        chance = rng.random()
        if chance < COPY_SHARE and recent:
            yield rng.choice(recent)
            continue
        if chance > 1 - LATE_SHARE:
            at_ms = max(start_ms, at_ms - rng.randrange(MAX_LATE_MS))
        topic, key, document = draw(rng, at_ms)
        if rng.random() < BROKEN_SHARE:
            yield Event(topic, key.encode(), break_it(rng, document), at_ms)
            continue
        event = Event(topic, key.encode(), encode(document), at_ms)
        recent.append(event)
        yield event


def broken_json(rng: random.Random, document: Document) -> bytes | None:
    """One of the ways in which a JSON event arrives broken: none of these may be counted, none may vanish."""
    text = encode_json(document)
    field = rng.choice(sorted(document))
    typed = rng.choice(sorted(name for name, value in document.items() if name == "at" or not isinstance(value, str)))
    match rng.randrange(6):
        case 0:
            return text[: rng.randrange(1, len(text))]  # cut off in transit
        case 1:
            return b"\xff\xfe\x00" + rng.randbytes(8)  # not text at all
        case 2:
            return encode_json({name: value for name, value in document.items() if name != field})
        case 3:
            return encode_json({**document, typed: "many"})  # neither a number nor a time
        case 4:
            return b""
        case _:
            return None
