"""The checker of fault histories finds what is wrong with single answers, and with producers that have several batches
under way: histories with planted errors, and harmless ones beside them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.history_check import Checker
from support.planted_history import Event, Events, assert_found, good, of, plant_after, replicas

TEXT = "`ip` is missing"


def latest(offset: int, asked: int) -> Event:
    return {"ms": 9, "op": "latest", "client": "w", "partition": 0, "offset": offset, "asked": asked}


def know_no_outcome(events: Events) -> None:
    """Nothing was acknowledged, nothing read."""
    events[:] = [event for event in events if event["op"] not in ("ack", "read")]


# Producers with several batches under way


def lose_the_first_of_a_window(events: Events) -> None:
    """x1 and x2 were under way together, nobody knows their outcome: x2 may not be there without x1."""
    know_no_outcome(events)
    for replica in replicas(events):
        del replica["values"][2]


def turn_a_window_round(events: Events) -> None:
    know_no_outcome(events)
    for replica in replicas(events):
        values = replica["values"]
        values[2], values[3] = values[3], values[2]


def store_a_window_twice(events: Events) -> None:
    """x1 and x2 were sent again, and neither was known to be there."""
    know_no_outcome(events)
    for replica in replicas(events):
        replica["values"] += ["x1", "x2"]


def acknowledge_an_older_one(events: Events) -> None:
    """A batch that was sent again is acknowledged with the offset of another of the window."""
    of(events, "ack", offset=4)[0]["offset"] = 3


def lose_one_stored_somewhere(events: Events) -> None:
    events.append({"ms": 9, "op": "ack", "producer": "x", "partition": 0, "offset": -1, "values": ["x3"]})


def miss_a_sequence(events: Events) -> None:
    events.append(
        {"ms": 9, "op": "gap", "producer": "x", "partition": 0, "seq": 3, "code": "UNKNOWN_PRODUCER_ID", "node": 1}
    )


# Single answers


def latest_goes_back(events: Events) -> None:
    events += [latest(5, len(events)), latest(4, len(events) + 1)]


def latest_goes_back_after_another_answer(events: Events) -> None:
    """The one in between was asked for earlier: it may say less."""
    events += [latest(5, 0), latest(3, 0), latest(4, len(events) + 2)]


def refuse(events: Events) -> None:
    events.append({"ms": 9, "op": "refused", "client": "x", "request": "produce", "code": "UNKNOWN_SERVER_ERROR"})


def read_from_a_follower_only(events: Events) -> None:
    """Consumers were shown a record by a follower alone, and no replica has it."""
    event = {"ms": 9, "op": "read", "consumer": "f", "partition": 0, "offset": 0, "values": ["x0", "y0"]}
    events.append(event | {"from_follower": 2})
    events.append(event | {"from_follower": 2, "offset": 2, "values": ["x1", "x2", "y1", "x3"]})


PLANTED: list[tuple[Callable[[Events], None], str]] = [
    (lose_the_first_of_a_window, "overtaken"),
    (turn_a_window_round, "reordered"),
    (store_a_window_twice, "duplicated"),
    (acknowledge_an_older_one, "two values"),
    (lose_one_stored_somewhere, "lost"),
    (miss_a_sequence, "gaps"),
    (latest_goes_back, "latest went back"),
    (latest_goes_back_after_another_answer, "latest went back"),
    (refuse, "refused"),
    (read_from_a_follower_only, "vanished"),
]


@pytest.mark.parametrize(("plant", "kind"), PLANTED, ids=lambda value: getattr(value, "__name__", value))
def test_planted_errors_are_found(plant: Callable[[Events], None], kind: str) -> None:
    verdict = assert_found(plant, kind)
    assert not verdict.counts["unknown events"]


def window_of_unknown_outcome(events: Events) -> None:
    """x3 to x7 were under way in the end; two of them were stored."""
    sent = {"op": "send", "producer": "x", "partition": 0}
    plant_after(events, "end", *(sent | {"seq": number, "values": [f"x{number}"]} for number in range(4, 8)))
    for replica in replicas(events):
        replica["values"] += ["x3", "x4"]
        replica["high_watermark"] += 2
        replica["end"] += 2


def stored_somewhere(events: Events) -> None:
    """Acknowledged as a duplicate that the partition does not remember."""
    of(events, "ack", offset=4)[0]["offset"] = -1


def ends_asked_for_at_the_same_time(events: Events) -> None:
    events += [latest(5, len(events)), latest(4, len(events))]


@pytest.mark.parametrize(
    "change",
    [window_of_unknown_outcome, stored_somewhere, ends_asked_for_at_the_same_time],
    ids=lambda change: change.__name__,
)
def test_what_is_not_known_may_be_either_way(change: Callable[[Events], None]) -> None:
    events = good()
    change(events)
    assert Checker().check(events).problems == []


def test_what_is_counted() -> None:
    """What was sent again, read from followers and asked for; to whom records were acknowledged; what is left out."""
    events = good()
    again = {"op": "again", "producer": "x", "partition": 0, "node": 1}
    near = {"op": "read", "consumer": "f", "partition": 0}
    plant_after(events, "cluster", {"op": "left_out", "what": "faults of networks", "why": TEXT})
    plant_after(events, "end", again | {"batches": 1}, again | {"batches": 4})
    plant_after(events, "end", near | {"offset": 0, "values": ["x0", "y0", "x1"], "from_follower": 2})
    events += [near | {"ms": 9, "offset": 3, "values": ["x2"]}, latest(5, len(events))]
    verdict = Checker().check(events)
    assert verdict.problems == []
    assert verdict.counts["windows sent again"] == 1
    assert verdict.counts["read from followers"] == 3
    assert verdict.counts["latest offsets"] == 1
    assert verdict.acknowledged_by == {"x": 2, "y": 2}
    assert f"left out                faults of networks: {TEXT}" in verdict.report()
