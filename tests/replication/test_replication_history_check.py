"""The checker of fault histories finds what is there to find: histories with planted errors of records and groups."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.history import History, read_history
from support.history_check import Checker
from support.planted_history import Events, assert_found, commit, fetched, good, of, replicas

TESTS = Path(__file__).parents[1]


def test_a_good_history() -> None:
    verdict = Checker().check(good())
    assert verdict.problems == []
    assert verdict.counts["acknowledged"] == 4
    assert verdict.counts["operations"] == 6 + 5 + 6 + 3 + 3 + 2  # sent, read, read in the group, and its requests
    assert verdict.counts["commits"] == 3
    assert verdict.counts["assignments"] == 2
    assert verdict.counts["replicas"] == 6
    assert verdict.faults == {"kill": 1}


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


def leave_a_trace(events: Events) -> None:
    events.append({"ms": 9, "op": "trace", "node": 1, "text": "Traceback"})


PLANTED: list[tuple[Callable[[Events], None], str]] = [
    (lose_the_end, "lost"),
    (lose_on_one_replica, "lost"),
    (duplicate, "duplicated"),
    (reorder, "reordered"),
    (lose_a_read_only, "two values"),
    (lose_the_end_that_was_only_read, "vanished"),
    (acknowledge_twice, "two values"),
    (differ, "replicas differ"),
    (differ_in_offsets_topic, "replicas differ"),
    (differ_in_values, "two values"),
    (miss_a_replica, "incomplete"),
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
    (leave_a_trace, "error traces"),
]


@pytest.mark.parametrize(("plant", "kind"), PLANTED, ids=lambda value: getattr(value, "__name__", value))
def test_planted_errors_are_found(plant: Callable[[Events], None], kind: str) -> None:
    assert_found(plant, kind)


def told_at_the_same_time(events: Events) -> None:
    """Asked before the commit was acknowledged, answered afterwards: both old and new will do."""
    of(events, "fetched", group="g")[0].update(offset=-1, asked=0)


def commit_under_way(events: Events) -> None:
    """Sent before the next owner was told, acknowledged afterwards."""
    late = commit("m", "a", 1, 3)
    late[1]["asked"] = 0
    events += [{"ms": 9, **event} for event in late]


@pytest.mark.parametrize("change", [told_at_the_same_time, commit_under_way], ids=lambda change: change.__name__)
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
