"""The checker of fault histories finds what it is there to find: histories with planted errors."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.history import History, read_history
from support.history_check import Checker

Event = dict[str, Any]
Events = list[Event]
TESTS = Path(__file__).parents[1]


def good() -> Events:
    """Two producers, one partition, three replicas; x2 got no answer, but was stored.

    One group has no members. The other has two, one after the other: a reads three records, commits two of them, and
    dies; b goes on where a had committed.
    """
    values = ["x0", "y0", "x1", "x2", "y1"]
    events: Events = []
    for offset, value in enumerate(values):
        producer, seq = value[0], int(value[1])
        events.append({"op": "send", "producer": producer, "partition": 0, "seq": seq, "values": [value]})
        if value != "x2":
            events.append({"op": "ack", "producer": producer, "partition": 0, "offset": offset, "values": [value]})
    events.append({"op": "read", "consumer": "c", "partition": 0, "offset": 0, "values": values[:2]})
    events.append({"op": "read", "consumer": "c", "partition": 0, "offset": 2, "values": values[2:]})
    events.append({"op": "send", "producer": "x", "partition": 0, "seq": 3, "values": ["x3"]})  # never stored
    events += [*commit("g", "", -1, 3), fetched("g", "", 3)]
    events += [assigned("a", 1), fetched("m", "a", -1), read("a", 0, values[:3]), *commit("m", "a", 1, 2)]
    events.append({"op": "fault", "kind": "kill", "nodes": [1], "unsettled": False})
    events += [assigned("b", 2), fetched("m", "b", 2), read("b", 2, values[2:]), *commit("m", "b", 2, 5)]
    events.append({"op": "healed"})
    for node in (1, 2, 3):
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


def latest(offset: int, asked: int) -> Event:
    return {"ms": 9, "op": "latest", "client": "w", "partition": 0, "offset": offset, "asked": asked}


def of(events: Events, op: str, **fields: Any) -> Events:
    return [event for event in events if event["op"] == op and all(event[name] == fields[name] for name in fields)]


def replicas(events: Events) -> Events:
    return of(events, "replica", topic="t")


def test_a_good_history() -> None:
    verdict = Checker().check(good())
    assert verdict.problems == []
    assert verdict.counts["acknowledged"] == 4
    assert verdict.counts["operations"] == 6 + 5 + 6 + 3 + 3 + 2  # sent, read, read in the group, and its requests
    assert verdict.counts["commits"] == 3
    assert verdict.counts["assignments"] == 2
    assert verdict.counts["replicas"] == 6
    assert verdict.faults == {"kill": 1}


@pytest.mark.parametrize("fields", [{"nodes": [1, 2]}, {"nodes": [1], "unsettled": True}])
def test_pauses_that_were_intended_are_told_apart(fields: Event) -> None:
    """Acknowledgements at 0, 2, 10, 20 and 25 s, all of them in one partition; two nodes are broken from 11 to 19 s."""
    acks = [
        {"ms": ms, "op": "ack", "producer": "x", "partition": 0, "offset": 0, "values": []} for ms in (0, 2, 10, 20, 25)
    ]
    fault = {"ms": 11, "op": "fault", "kind": "kill", **fields}
    verdict = Checker().check([*acks[:3], fault, {"ms": 19, "op": "healed"}, *acks[3:]])
    assert (verdict.longest_pause_ms, verdict.longest_total_pause_ms) == (8, 10)


def lose_the_end(events: Events) -> None:
    for replica in replicas(events):
        replica["values"].pop()
        replica["high_watermark"] -= 1


def lose_on_one_replica(events: Events) -> None:
    replicas(events)[2]["values"].pop()


def duplicate(events: Events) -> None:
    for replica in replicas(events):
        replica["values"].append("x1")


def reorder(events: Events) -> None:
    for replica in replicas(events):
        values = replica["values"]
        values[2], values[3] = values[3], values[2]


def lose_the_first_of_a_window(events: Events) -> None:
    """x1 and x2 were under way together, nobody knows their outcome: x2 may not be there without x1."""
    events[:] = [event for event in events if event["op"] not in ("ack", "read")]
    for replica in replicas(events):
        del replica["values"][2]


def turn_a_window_round(events: Events) -> None:
    events[:] = [event for event in events if event["op"] not in ("ack", "read")]
    reorder(events)


def store_a_window_twice(events: Events) -> None:
    """x1 and x2 were sent again, and neither was known to be there."""
    events[:] = [event for event in events if event["op"] not in ("ack", "read")]
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


def lose_a_read_only(events: Events) -> None:
    """Not acknowledged, but read: consumers see only what is committed, so it must stay."""
    for replica in replicas(events):
        replica["values"][3] = "x3"


def lose_the_end_that_was_only_read(events: Events) -> None:
    events[:] = [event for event in events if not (event["op"] == "ack" and event["offset"] == 4)]
    lose_the_end(events)


def acknowledge_twice(events: Events) -> None:
    of(events, "ack", offset=1)[0]["offset"] = 0


def differ(events: Events) -> None:
    replicas(events)[1]["digest"] = "other"


def differ_in_offsets_topic(events: Events) -> None:
    of(events, "replica", topic="o")[1]["digest"] = "other"


def differ_in_values(events: Events) -> None:
    replicas(events)[1]["values"][3] = "x3"


def miss_a_replica(events: Events) -> None:
    events.remove(replicas(events)[1])


def read_something_else(events: Events) -> None:
    of(events, "read", consumer="c", offset=0)[0]["values"] = ["x0", "x3"]


def read_beyond(events: Events) -> None:
    events.append({"ms": 9, "op": "read", "consumer": "c", "partition": 0, "offset": 5, "values": ["y1"]})


def skip_while_reading(events: Events) -> None:
    event = of(events, "read", consumer="c", offset=2)[0]
    event["offset"], event["values"] = 3, event["values"][1:]


def invent(events: Events) -> None:
    for replica in replicas(events):
        replica["values"].append("z9")


def forget_replicas(events: Events) -> None:
    events[:] = [event for event in events if event["op"] != "replica"]


def commit_goes_back(events: Events) -> None:
    of(events, "fetched", group="g")[0]["offset"] = 2


def told_less_later(events: Events) -> None:
    events.append({"ms": 9, **fetched("g", "", 2), "asked": len(events)})


def told_nothing(events: Events) -> None:
    of(events, "fetched", member="b")[0]["offset"] = -1


def told_what_nobody_committed(events: Events) -> None:
    of(events, "fetched", group="g")[0]["offset"] = 4


def store_less_in_the_end(events: Events) -> None:
    of(events, "stored", group="m", node=2)[0]["offsets"].pop()


def store_a_step_back(events: Events) -> None:
    of(events, "stored", group="m", node=3)[0]["offsets"].insert(1, 1)


def store_nothing(events: Events) -> None:
    events[:] = [event for event in events if not (event["op"] == "stored" and event["group"] == "g")]


def give_to_two(events: Events) -> None:
    of(events, "assigned", member="b")[0]["generation"] = 1


def commit_after_the_next_owner(events: Events) -> None:
    late = commit("m", "a", 1, 3)
    late[1]["asked"] = len(events)
    events += [{"ms": 9, **event} for event in late]


def resume_elsewhere(events: Events) -> None:
    event = of(events, "read", consumer="b")[0]
    event["offset"], event["values"] = 3, event["values"][1:]


def resume_without_asking(events: Events) -> None:
    events.remove(of(events, "fetched", member="b")[0])


def commit_unread(events: Events) -> None:
    events.remove(of(events, "read", consumer="b")[0])


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


def leave_a_trace(events: Events) -> None:
    events.append({"ms": 9, "op": "trace", "node": 1, "text": "Traceback"})


PLANTED: list[tuple[Callable[[Events], None], str]] = [
    (lose_the_end, "lost"),
    (lose_on_one_replica, "lost"),
    (duplicate, "duplicated"),
    (reorder, "reordered"),
    (lose_the_first_of_a_window, "overtaken"),
    (turn_a_window_round, "reordered"),
    (store_a_window_twice, "duplicated"),
    (acknowledge_an_older_one, "two values"),
    (lose_one_stored_somewhere, "lost"),
    (miss_a_sequence, "gaps"),
    (lose_a_read_only, "two values"),
    (lose_the_end_that_was_only_read, "vanished"),
    (acknowledge_twice, "two values"),
    (differ, "replicas differ"),
    (differ_in_offsets_topic, "replicas differ"),
    (differ_in_values, "two values"),
    (miss_a_replica, "replicas differ"),
    (read_something_else, "two values"),
    (read_beyond, "vanished"),
    (skip_while_reading, "reads skipped"),
    (invent, "two values"),
    (forget_replicas, "lost"),
    (commit_goes_back, "commits lost"),
    (told_less_later, "commits lost"),
    (told_nothing, "commits lost"),
    (told_what_nobody_committed, "commits invented"),
    (store_less_in_the_end, "commits lost"),
    (store_a_step_back, "commits lost"),
    (store_nothing, "commits lost"),
    (give_to_two, "two owners"),
    (commit_after_the_next_owner, "commits of the past"),
    (resume_elsewhere, "not resumed"),
    (resume_without_asking, "not resumed"),
    (commit_unread, "unread"),
    (latest_goes_back, "latest went back"),
    (latest_goes_back_after_another_answer, "latest went back"),
    (refuse, "refused"),
    (read_from_a_follower_only, "vanished"),
    (leave_a_trace, "error traces"),
]


@pytest.mark.parametrize(("plant", "kind"), PLANTED, ids=lambda value: getattr(value, "__name__", value))
def test_planted_errors_are_found(plant: Callable[[Events], None], kind: str) -> None:
    events = good()
    plant(events)
    verdict = Checker().check(events)
    assert not verdict.is_good
    assert verdict.counts[kind] > 0, verdict.report()


def told_at_the_same_time(events: Events) -> None:
    """Asked before the commit was acknowledged, answered afterwards: both old and new will do."""
    of(events, "fetched", group="g")[0].update(offset=-1, asked=0)


def commit_under_way(events: Events) -> None:
    """Sent before the next owner was told, acknowledged afterwards."""
    late = commit("m", "a", 1, 3)
    late[1]["asked"] = 0
    events += [{"ms": 9, **event} for event in late]


def window_of_unknown_outcome(events: Events) -> None:
    """x3 to x7 were under way in the end; two of them were stored."""
    for number in range(4, 8):
        events.insert(
            0, {"ms": 9, "op": "send", "producer": "x", "partition": 0, "seq": number, "values": [f"x{number}"]}
        )
    for replica in replicas(events):
        replica["values"] += ["x3", "x4"]
        replica["high_watermark"] += 2


def stored_somewhere(events: Events) -> None:
    """Acknowledged as a duplicate that the partition does not remember."""
    of(events, "ack", offset=4)[0]["offset"] = -1


def ends_asked_for_at_the_same_time(events: Events) -> None:
    events += [latest(5, len(events)), latest(4, len(events))]


HARMLESS = [
    told_at_the_same_time,
    commit_under_way,
    ends_asked_for_at_the_same_time,
    window_of_unknown_outcome,
    stored_somewhere,
]


@pytest.mark.parametrize("change", HARMLESS, ids=lambda change: change.__name__)
def test_what_happens_at_the_same_time_may_come_in_any_order(change: Callable[[Events], None]) -> None:
    events = good()
    change(events)
    assert Checker().check(events).problems == []


def test_the_checker_is_a_program(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history = History(path)
    for event in good():
        history.add(**{key: value for key, value in event.items() if key != "ms"})
    history.close()
    assert len(list(read_history(path))) == len(good())
    command = [sys.executable, "-m", "support.history_check", str(path)]
    passed = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    assert passed.returncode == 0, passed.stderr
    assert "acknowledged            4" in passed.stdout
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line for line in lines if json.loads(line)["op"] != "replica"))
    failed = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert "PROBLEM" in failed.stdout
