"""The checker of fault histories finds what it is there to find: histories with planted errors."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.history import History, read_history
from support.history_check import Checker

Events = list[dict[str, Any]]
TESTS = Path(__file__).parents[1]


def good() -> Events:
    """Two producers, one partition, three replicas; x2 got no answer, but was stored."""
    values = ["x0", "y0", "x1", "x2", "y1"]
    events: Events = []
    for offset, value in enumerate(values):
        producer, seq = value[0], int(value[1])
        events.append({"op": "send", "producer": producer, "partition": 0, "seq": seq, "value": value})
        if value != "x2":
            events.append({"op": "ack", "producer": producer, "partition": 0, "value": value, "offset": offset})
        events.append({"op": "read", "consumer": "c", "partition": 0, "offset": offset, "value": value})
    events.append({"op": "send", "producer": "x", "partition": 0, "seq": 3, "value": "x3"})  # never stored
    events.append({"op": "commit", "group": "g", "partition": 0, "offset": 3})
    events.append({"op": "fetched", "group": "g", "partition": 0, "offset": 3})
    events.append({"op": "fault", "kind": "kill", "nodes": [1]})
    for node in (1, 2, 3):
        events.append(
            {
                "op": "replica",
                "node": node,
                "partition": 0,
                "start": 0,
                "end": 5,
                "high_watermark": 5,
                "digest": "same",
                "values": list(values),
            }
        )
    for at, event in enumerate(events):
        event["ms"] = at * 10
    return events


def replicas(events: Events) -> Events:
    return [event for event in events if event["op"] == "replica"]


def test_a_good_history() -> None:
    verdict = Checker(good()).check()
    assert verdict.problems == []
    assert verdict.counts["acknowledged"] == 4
    assert verdict.counts["commits"] == 1
    assert verdict.faults == {"kill": 1}
    assert verdict.longest_pause_ms == 50


def lose_the_end(events: Events) -> None:
    for replica in replicas(events):
        replica["values"].pop()
        replica["high_watermark"] -= 1


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


def differ(events: Events) -> None:
    replicas(events)[1]["digest"] = "other"


def differ_in_values(events: Events) -> None:
    replicas(events)[1]["values"][3] = "x3"


def read_something_else(events: Events) -> None:
    next(e for e in events if e["op"] == "read" and e["offset"] == 1)["value"] = "x3"


def read_beyond(events: Events) -> None:
    events.append({"ms": 9, "op": "read", "consumer": "c", "partition": 0, "offset": 17, "value": "y1"})


def commit_goes_back(events: Events) -> None:
    next(e for e in events if e["op"] == "fetched")["offset"] = 2


def told_less_later(events: Events) -> None:
    events.append({"ms": 9, "op": "fetched", "group": "g", "partition": 0, "offset": 2})


def invent(events: Events) -> None:
    for replica in replicas(events):
        replica["values"].append("z9")


def forget_replicas(events: Events) -> None:
    events[:] = [event for event in events if event["op"] != "replica"]


PLANTED: list[tuple[Callable[[Events], None], str]] = [
    (lose_the_end, "lost"),
    (duplicate, "duplicated"),
    (reorder, "reordered"),
    (lose_a_read_only, "two values"),
    (differ, "replicas differ"),
    (differ_in_values, "two values"),
    (read_something_else, "two values"),
    (read_beyond, "vanished"),
    (commit_goes_back, "commits lost"),
    (told_less_later, "commits lost"),
    (invent, "two values"),
    (forget_replicas, "lost"),
]


@pytest.mark.parametrize(("plant", "kind"), PLANTED, ids=lambda value: getattr(value, "__name__", value))
def test_planted_errors_are_found(plant: Callable[[Events], None], kind: str) -> None:
    events = copy.deepcopy(good())
    plant(events)
    verdict = Checker(events).check()
    assert not verdict.is_good
    assert verdict.counts[kind] > 0, verdict.report()


def test_the_checker_is_a_program(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    history = History(path)
    for event in good():
        history.add(**{key: value for key, value in event.items() if key != "ms"})
    history.close()
    assert len(read_history(path)) == len(good())
    command = [sys.executable, "-m", "support.history_check", str(path)]
    passed = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    assert passed.returncode == 0, passed.stderr
    assert "acknowledged            4" in passed.stdout
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line for line in lines if json.loads(line)["op"] != "replica"))
    failed = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert "PROBLEM" in failed.stdout
