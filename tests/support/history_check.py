"""Checks a history of clients and faults against the promises of replication. A program of its own:

    python -m support.history_check FILE

Events, each with "ms" and "op"; "asked" is the number of events before the one that asked:
  send     producer, partition, seq, values      records are handed over; seq of the first, per producer and partition
  ack      producer, partition, offset, values   they were acknowledged with acks=all, the first at offset; offset -1:
                                                 they are stored, it was not said where
  again    producer, partition, batches, node    so many batches of unknown outcome, or refused, were sent again at once
  gap      producer, partition, seq, code, node  a batch was refused because one before it is missing, and none is
  read     consumer, partition, offset, values, group?, from_follower?   a consumer got them; the first read of a
                                                 consumer outside a group is at offset 0
  latest   client, partition, offset, asked      the end as ListOffsets tells it
  refused  client, request, code                 an error that Kafka's clients would throw at their application
  assigned group, member, generation, partitions   a member was told what it has
  offer    group, partition, offset              an offset is about to be committed
  commit   group, member, generation, partition, offset, asked   the commit was acknowledged
  fetched  group, member, partition, offset, asked   the group's offset was asked for, and this was the answer
  left, vanished   group, member                 a member's end, by its own will
  fault    kind, nodes, unsettled                something is broken; unsettled: something else still was
  left_out what, why                             something this history should have had, and could not
  healed                                         the cause of the last fault is gone
  replica  node, topic, partition, start, end, high_watermark, digest, values   a replica in the end: records from
                                                 start on, the digest of its bytes below high_watermark; the values of
                                                 internal topics are left out
  stored   node, group, partition, offsets       all offsets of a group in a replica of __consumer_offsets, in order
  trace    node, text                            a node's log has the trace of an error that nobody expected
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from support.history import read_history
from support.history_answers import NOWHERE, AnswerChecker
from support.history_groups import GroupChecker

Log = dict[int, str]  # offset -> value

MIN_ISR_LOST = 2
"""With so many of three nodes broken, a partition has fewer than two replicas, and must not acknowledge."""
SHOWN = (
    "operations",
    "acknowledged",
    "lost",
    "duplicated",
    "reordered",
    "windows sent again",
    "overtaken",
    "gaps",
    "vanished",
    "two values",
    "reads skipped",
    "read from followers",
    "latest offsets",
    "latest went back",
    "replicas",
    "replicas differ",
    "assignments",
    "commits",
    "commits lost",
    "commits invented",
    "commits of the past",
    "two owners",
    "not resumed",
    "unread",
    "refused",
    "error traces",
)


@dataclass
class Verdict:
    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    acknowledged: Counter[str] = field(default_factory=Counter)
    """Records by producer: each has had its part."""
    left_out: list[str] = field(default_factory=list)
    """Weakens what the rest says, and so belongs beside it."""
    longest_pause_ms: int = 0
    """Without an acknowledgement in some partition, while min.insync.replicas were there or coming back."""
    longest_total_pause_ms: int = 0
    """... whatever was broken."""

    @property
    def is_good(self) -> bool:
        return not self.problems

    def problem(self, kind: str, text: str) -> None:
        self.counts[kind] += 1
        self.problems.append(text)

    def report(self) -> str:
        lines = [f"{name:<24}{self.counts[name]}" for name in SHOWN]
        lines.append(f"{'faults':<24}{sum(self.faults.values())}")
        lines += [f"  {kind:<36}{count}" for kind, count in sorted(self.faults.items())]
        lines.append(
            f"{'longest unavailability':<24}{self.longest_pause_ms} ms between two acknowledgements in a partition, "
            f"{self.longest_total_pause_ms} ms around faults of two or all nodes"
        )
        lines += [f"{'left out':<24}{what}" for what in self.left_out]
        return "\n".join([*lines, *(f"PROBLEM: {problem}" for problem in self.problems[:20])])


class Checker:
    """Takes the events once, in order; what needs the final logs is kept until they are known."""

    def __init__(self) -> None:
        self.verdict = Verdict()
        self._replicas: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
        self._sent: dict[int, dict[str, tuple[str, int]]] = defaultdict(dict)
        self._acknowledged: dict[int, Log] = defaultdict(dict)
        self._read: dict[int, Log] = defaultdict(dict)
        self._positions: dict[tuple[str, int], int] = {}
        self._ack_times: dict[int, list[int]] = defaultdict(list)
        self._groups = GroupChecker(self.verdict.problem, self.verdict.counts)
        self._answers = AnswerChecker(self.verdict.problem, self.verdict.counts)
        self._fault: dict[str, Any] | None = None
        self._below_min_isr: list[tuple[int, int]] = []

    def check(self, events: Iterable[dict[str, Any]]) -> Verdict:
        last_ms = 0
        for number, event in enumerate(events):
            take = getattr(self, f"_on_{event['op']}", None)
            if take is not None:
                take(event)
            self._groups.on_event(number, event)
            self._answers.on_event(number, event)
            last_ms = event["ms"]
        self._on_healed({"ms": last_ms})
        logs = self._check_replicas()
        for partition, distinct in logs.items():
            for log in distinct:
                self._check_once_and_in_order(partition, log)
                self._answers.check_log(partition, self._sent[partition], log)
        self._check_kept(logs, self._acknowledged, "lost", "was acknowledged")
        self._check_kept(logs, self._read, "vanished", "was read")
        self._groups.check_end()
        self._check_pauses()
        return self.verdict

    # --- events

    def _on_send(self, event: dict[str, Any]) -> None:
        self.verdict.counts["operations"] += len(event["values"])
        for at, value in enumerate(event["values"]):
            self._sent[event["partition"]][value] = (event["producer"], event["seq"] + at)

    def _on_ack(self, event: dict[str, Any]) -> None:
        self.verdict.counts["acknowledged"] += len(event["values"])
        self.verdict.acknowledged[event["producer"]] += len(event["values"])
        self._ack_times[event["partition"]].append(event["ms"])
        if event["offset"] != NOWHERE:
            self._note(self._acknowledged, event, "acknowledged")

    def _on_read(self, event: dict[str, Any]) -> None:
        self.verdict.counts["operations"] += len(event["values"])
        self._note(self._read, event, "read")
        if "group" not in event:
            consumer, partition, offset = event["consumer"], event["partition"], event["offset"]
            expected = self._positions.get((consumer, partition), 0)
            if offset != expected:
                text = f"{consumer} got offset {offset} of partition {partition} instead of {expected}"
                self.verdict.problem("reads skipped", text)
            self._positions[consumer, partition] = offset + len(event["values"])

    def _note(self, told: dict[int, Log], event: dict[str, Any], how: str) -> None:
        """Nobody may have been told another value for the offset."""
        partition = event["partition"]
        log = told[partition]
        for offset, value in enumerate(event["values"], event["offset"]):
            known = log.setdefault(offset, value)
            if known != value:
                text = f"partition {partition}, offset {offset}: {how} as {known} and as {value}"
                self.verdict.problem("two values", text)

    def _on_replica(self, event: dict[str, Any]) -> None:
        self.verdict.counts["replicas"] += 1
        self._replicas[event["topic"], event["partition"]].append(event)

    def _on_fault(self, event: dict[str, Any]) -> None:
        self._on_healed(event)
        self.verdict.faults[event["kind"]] += 1
        self._fault = event

    def _on_healed(self, event: dict[str, Any]) -> None:
        fault, self._fault = self._fault, None
        if fault is not None and (len(fault["nodes"]) >= MIN_ISR_LOST or fault.get("unsettled")):
            self._below_min_isr.append((fault["ms"], event["ms"]))

    def _on_left_out(self, event: dict[str, Any]) -> None:
        self.verdict.left_out.append(f"{event['what']}: {event['why']}")

    def _on_trace(self, event: dict[str, Any]) -> None:
        self.verdict.problem("error traces", f"node {event['node']}: {event['text']}")

    # --- the end

    def _check_replicas(self) -> dict[int, list[Log]]:
        """All replicas of a partition are the same, to the byte, up to the high watermark. Returns what there is of
        each partition; more than one only if replicas differ."""
        logs: dict[int, list[Log]] = defaultdict(list)
        if not self._replicas:
            self.verdict.problems.append("the history has no replicas in the end: nothing can be said")
        nodes = {replica["node"] for replicas in self._replicas.values() for replica in replicas}
        for (topic, partition), replicas in self._replicas.items():
            missing = nodes - {replica["node"] for replica in replicas}
            if missing:
                self.verdict.problem("replicas differ", f"{topic}-{partition} is not on nodes {sorted(missing)}")
            states = {(r["start"], r["high_watermark"], r["digest"]) for r in replicas}
            if len(states) > 1:
                told = ", ".join(
                    f"{r['node']}: [{r['start']}, {r['high_watermark']}) {r['digest'][:8]}" for r in replicas
                )
                self.verdict.problem("replicas differ", f"{topic}-{partition} differs between replicas: {told}")
            for replica in replicas:
                if replica["values"] is not None:
                    log = dict(enumerate(replica["values"], replica["start"]))
                    if log not in logs[partition]:
                        self._check_same(partition, logs[partition], log)
                        logs[partition].append(log)
        return logs

    def _check_same(self, partition: int, others: list[Log], log: Log) -> None:
        for other in others:
            for offset in other.keys() & log.keys():
                if other[offset] != log[offset]:
                    text = f"partition {partition}, offset {offset}: {other[offset]} and {log[offset]}"
                    self.verdict.problem("two values", text)

    def _check_once_and_in_order(self, partition: int, log: Log) -> None:
        """Every record is there once, and those of a producer in the order in which it sent them."""
        seen: dict[str, int] = {}
        last: dict[str, int] = {}
        for offset, value in sorted(log.items()):
            if value in seen:
                text = f"{value} is at offsets {seen[value]} and {offset} of partition {partition}"
                self.verdict.problem("duplicated", text)
            seen[value] = offset
            sent = self._sent[partition].get(value)
            if sent is None:
                self.verdict.problem("two values", f"{value} in partition {partition} was never sent there")
                continue
            producer, seq = sent
            if seq < last.get(producer, -1):
                text = f"{value} of {producer} comes after a later record in {partition}"
                self.verdict.problem("reordered", text)
            last[producer] = max(seq, last.get(producer, -1))

    def _check_kept(self, logs: dict[int, list[Log]], told: dict[int, Log], kind: str, how: str) -> None:
        """What clients were told is on every replica, where they were told it is."""
        for partition, expected in told.items():
            for offset, value in expected.items():
                found = {log.get(offset) for log in logs.get(partition, ())} or {None}
                if found != {value}:
                    there = next((str(other) for other in found if other != value), "")
                    where = f"at offset {offset} of partition {partition}, where {there} is"
                    self.verdict.problem(kind if None in found else "two values", f"{value} {how} {where}")
                    if how == "was acknowledged" and None not in found:
                        self.verdict.counts["lost"] += 1

    def _check_pauses(self) -> None:
        """Between two acknowledgements in a partition; those apart that a fault of too many nodes lies between."""
        for times in self._ack_times.values():
            for before, after in pairwise(times):
                length = after - before
                self.verdict.longest_total_pause_ms = max(self.verdict.longest_total_pause_ms, length)
                if length > self.verdict.longest_pause_ms and not any(
                    start < after and before < end for start, end in self._below_min_isr
                ):
                    self.verdict.longest_pause_ms = length


def check(path: Path) -> Verdict:
    return Checker().check(read_history(path))


if __name__ == "__main__":
    result = check(Path(sys.argv[1]))
    print(result.report())
    sys.exit(0 if result.is_good else 1)
