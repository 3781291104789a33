"""A good history for `history_check`, small enough to plant errors in, and the events it is made of."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from support.history_check import Checker
from support.history_verdict import Verdict

Event = dict[str, Any]
Events = list[Event]

CLUSTER: Event = {
    "op": "cluster",
    "nodes": [1, 2, 3],
    "topics": [
        {"name": "t", "partitions": 1, "replicas": [1, 2, 3], "has_values": True, "has_offsets": False},
        {"name": "o", "partitions": 1, "replicas": [1, 2, 3], "has_values": False, "has_offsets": True},
    ],
    "groups": [{"name": "g", "has_members": False}, {"name": "m", "has_members": True}],
}


def good() -> Events:
    """Two producers, one partition, three replicas; x2 got no answer, but was stored.

    One group has no members. The other has two, one after the other: a reads three records, commits two of them, and
    dies; b goes on where a had committed.
    """
    values = ["x0", "y0", "x1", "x2", "y1"]
    events: Events = [copy.deepcopy(CLUSTER), {"op": "begin"}]
    events += [event for offset, value in enumerate(values[:4]) for event in produced(offset, value)]
    events.append({"op": "read", "consumer": "c", "partition": 0, "offset": 0, "values": values[:2]})
    events.append({"op": "send", "producer": "x", "partition": 0, "seq": 3, "values": ["x3"]})  # never stored
    events += [*commit("g", "", -1, 3), fetched("g", "", 3)]
    events += [assigned("a", 1), fetched("m", "a", -1), read("a", 0, values[:3]), *commit("m", "a", 1, 2)]
    events += [{"op": "fault", "kind": "kill", "nodes": [1], "unsettled": False}, {"op": "healed"}]
    events += produced(4, values[4])
    events += [assigned("b", 2), fetched("m", "b", 2), read("b", 2, values[2:]), *commit("m", "b", 2, 5)]
    events.append({"op": "end"})
    events.append({"op": "read", "consumer": "c", "partition": 0, "offset": 2, "values": values[2:]})
    for node in (1, 2, 3):
        events.append({"op": "ended", "node": node, "code": 0, "cause": "SIGTERM"})
        replica = {"op": "replica", "node": node, "start": 0, "partition": 0, "digest": "same"}
        events.append(replica | {"topic": "t", "end": 5, "high_watermark": 5, "values": list(values)})
        events.append(replica | {"topic": "o", "end": 9, "high_watermark": 9, "values": None})
        events.append({"op": "stored", "node": node, "group": "g", "partition": 0, "offsets": [3]})
        events.append({"op": "stored", "node": node, "group": "m", "partition": 0, "offsets": [2, 5]})
    for at, event in enumerate(events):
        event["ms"] = at * 10
        if "asked" in event:
            event["asked"] = at
    return events


def assert_found(plant: Callable[[Events], None], kind: str) -> Verdict:
    """A planted error is one, and is called by its name."""
    events = good()
    plant(events)
    verdict = Checker().check(events)
    assert not verdict.is_good
    assert verdict.counts[kind] > 0, verdict.report()
    return verdict


def produced(offset: int, value: str) -> Events:
    producer, seq = value[0], int(value[1])
    sent = {"op": "send", "producer": producer, "partition": 0, "seq": seq, "values": [value]}
    if value == "x2":
        return [sent]
    return [sent, {"op": "ack", "producer": producer, "partition": 0, "offset": offset, "values": [value]}]


def commit(group: str, member: str, generation: int, offset: int) -> Events:
    of_group = {"group": group, "partition": 0, "offset": offset}
    return [
        {"op": "offer", **of_group},
        {"op": "commit", "member": member, "generation": generation, "asked": 0, **of_group},
    ]


def fetched(group: str, member: str, offset: int) -> Event:
    return {"op": "fetched", "group": group, "member": member, "partition": 0, "offset": offset, "asked": 0}


def assigned(member: str, generation: int) -> Event:
    return {"op": "assigned", "group": "m", "member": member, "generation": generation, "partitions": [0]}


def read(member: str, offset: int, values: list[str]) -> Event:
    return {"op": "read", "consumer": member, "group": "m", "partition": 0, "offset": offset, "values": list(values)}


def of(events: Events, op: str, **fields: Any) -> Events:
    return [event for event in events if event["op"] == op and all(event[name] == fields[name] for name in fields)]


def replicas(events: Events) -> Events:
    return of(events, "replica", topic="t")


def plant_after(events: Events, op: str, *more: Event) -> None:
    """After the first event of this kind, at the same time."""
    at = next(at for at, event in enumerate(events) if event["op"] == op)
    events[at + 1 : at + 1] = [{"ms": events[at]["ms"], **event} for event in more]
