"""Checks a history of clients and faults against the promises of replication. A program of its own:

    python -m support.history_check FILE

Events, each with "ms" and "op":
  send    producer, partition, seq, value     a record is handed over; seq counts per producer and partition
  ack     producer, partition, value, offset  it was acknowledged with acks=all
  read    consumer, partition, offset, value  a consumer got it
  commit  group, partition, offset            the group's offset was committed, and that was acknowledged
  fetched group, partition, offset            the group's offset was asked for, and this was the answer
  fault   kind, nodes                         something was broken
  replica node, partition, start, end, high_watermark, digest, values   a replica in the end: records from start on,
                                              the digest of its bytes below high_watermark
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.history import read_history


@dataclass
class Verdict:
    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    longest_pause_ms: int = 0

    @property
    def is_good(self) -> bool:
        return not self.problems

    def report(self) -> str:
        faults = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items())) or "none"
        shown = ("operations", "acknowledged", "lost", "duplicated", "reordered", "vanished", "two values")
        lines = [f"{name:<24}{self.counts[name]}" for name in (*shown, "commits", "commits lost", "replicas differ")]
        lines.append(f"{'faults':<24}{faults}")
        lines.append(f"{'longest unavailability':<24}{self.longest_pause_ms} ms")
        return "\n".join([*lines, *(f"PROBLEM: {problem}" for problem in self.problems[:20])])


class Checker:
    def __init__(self, events: Iterable[dict[str, Any]]) -> None:
        self._events = list(events)
        self._verdict = Verdict()
        self._logs: dict[int, dict[int, str]] = {}

    def check(self) -> Verdict:
        verdict = self._verdict
        for event in self._events:
            verdict.counts["operations"] += event["op"] in ("send", "read", "commit", "fetched")
            if event["op"] == "fault":
                verdict.faults[event["kind"]] += 1
        self._replicas()
        self._acknowledged()
        self._once_and_in_order()
        self._reads()
        self._commits()
        self._pauses()
        return verdict

    def _problem(self, kind: str, text: str) -> None:
        self._verdict.counts[kind] += 1
        self._verdict.problems.append(text)

    def _of(self, op: str) -> list[dict[str, Any]]:
        return [event for event in self._events if event["op"] == op]

    def _replicas(self) -> None:
        """All replicas of a partition are the same, to the byte, up to the high watermark."""
        by_partition: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for replica in self._of("replica"):
            by_partition[replica["partition"]].append(replica)
        if not by_partition:
            self._verdict.problems.append("the history has no replicas in the end: nothing can be said")
        for partition, replicas in by_partition.items():
            states = {(r["start"], r["high_watermark"], r["digest"]) for r in replicas}
            if len(states) > 1:
                told = ", ".join(
                    f"{r['node']}: [{r['start']}, {r['high_watermark']}) {r['digest'][:8]}" for r in replicas
                )
                self._problem("replicas differ", f"partition {partition} differs between replicas: {told}")
            for replica in replicas:
                values = {replica["start"] + at: value for at, value in enumerate(replica["values"])}
                known = self._logs.setdefault(partition, values)
                for offset, value in values.items():
                    if known.get(offset, value) != value:
                        self._problem(
                            "two values", f"partition {partition}, offset {offset}: {known[offset]} and {value}"
                        )

    def _acknowledged(self) -> None:
        for ack in self._of("ack"):
            self._verdict.counts["acknowledged"] += 1
            found = self._logs.get(ack["partition"], {}).get(ack["offset"])
            if found is None:
                where = f"partition {ack['partition']}, offset {ack['offset']}"
                self._problem("lost", f"{ack['value']} was acknowledged at {where} and is gone")
            elif found != ack["value"]:
                where = f"partition {ack['partition']}, offset {ack['offset']}"
                self._problem("lost", f"{ack['value']} was acknowledged at {where}, where {found} is")
                self._verdict.counts["two values"] += 1

    def _once_and_in_order(self) -> None:
        order = {(s["producer"], s["partition"], s["value"]): s["seq"] for s in self._of("send")}
        producer_of = {(s["partition"], s["value"]): s["producer"] for s in self._of("send")}
        for partition, log in self._logs.items():
            seen: dict[str, int] = {}
            last: dict[str, int] = {}
            for offset, value in sorted(log.items()):
                if value in seen:
                    self._problem(
                        "duplicated", f"{value} is at offsets {seen[value]} and {offset} of partition {partition}"
                    )
                seen[value] = offset
                producer = producer_of.get((partition, value))
                if producer is None:
                    self._problem("two values", f"{value} in partition {partition} was never sent there")
                    continue
                seq = order[producer, partition, value]
                if seq < last.get(producer, -1):
                    self._problem("reordered", f"{value} of {producer} comes after a later record in {partition}")
                last[producer] = max(seq, last.get(producer, -1))

    def _reads(self) -> None:
        for read in self._of("read"):
            found = self._logs.get(read["partition"], {}).get(read["offset"])
            if found != read["value"]:
                where = f"partition {read['partition']}, offset {read['offset']}"
                kind = "vanished" if found is None else "two values"
                self._problem(
                    kind, f"{read['consumer']} read {read['value']} at {where}, where {found or 'nothing'} is"
                )

    def _commits(self) -> None:
        """A group is told at least what it was told it had committed, and never less than it was told before."""
        last: dict[tuple[str, int], int] = {}
        for event in self._events:
            if event["op"] not in ("commit", "fetched"):
                continue
            key = (event["group"], event["partition"])
            self._verdict.counts["commits"] += event["op"] == "commit"
            if event["op"] == "fetched" and event["offset"] < last.get(key, -1):
                self._problem(
                    "commits lost", f"{key[0]}, partition {key[1]}: {event['offset']} after {last[key]} was committed"
                )
            last[key] = max(last.get(key, -1), event["offset"])

    def _pauses(self) -> None:
        """The longest time without an acknowledgement in any partition, between its first and its last."""
        times: dict[int, int] = {}
        for ack in self._of("ack"):
            before = times.get(ack["partition"])
            if before is not None:
                self._verdict.longest_pause_ms = max(self._verdict.longest_pause_ms, ack["ms"] - before)
            times[ack["partition"]] = ack["ms"]


def check(path: Path) -> Verdict:
    return Checker(read_history(path)).check()


if __name__ == "__main__":
    result = check(Path(sys.argv[1]))
    print(result.report())
    sys.exit(0 if result.is_good else 1)
