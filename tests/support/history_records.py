"""What `history_check` demands of records: kept, once, in order, the same for everyone and on every replica."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from support.history_answers import NOWHERE, AnswerChecker, Log, Sent
from support.history_verdict import Verdict


class RecordChecker:
    """What needs the final logs is kept until they are known."""

    def __init__(self, verdict: Verdict, answers: AnswerChecker) -> None:
        self._verdict = verdict
        self._answers = answers
        self._replicas: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
        self._sent: dict[int, Sent] = defaultdict(dict)
        self._acknowledged: dict[int, Log] = defaultdict(dict)
        self._read: dict[int, Log] = defaultdict(dict)
        self._positions: dict[tuple[str, int], int] = {}

    # --- events

    def on_send(self, number: int, event: dict[str, Any]) -> None:
        self._verdict.counts["operations"] += len(event["values"])
        for at, value in enumerate(event["values"]):
            self._sent[event["partition"]][value] = (event["producer"], event["seq"] + at)

    def on_ack(self, number: int, event: dict[str, Any]) -> None:
        self._verdict.counts["acknowledged"] += len(event["values"])
        if event["offset"] != NOWHERE:
            self._note(self._acknowledged, event, "acknowledged")

    def on_read(self, number: int, event: dict[str, Any]) -> None:
        self._verdict.counts["operations"] += len(event["values"])
        self._note(self._read, event, "read")
        if "group" not in event:
            consumer, partition, offset = event["consumer"], event["partition"], event["offset"]
            expected = self._positions.get((consumer, partition), 0)
            if offset != expected:
                text = f"{consumer} got offset {offset} of partition {partition} instead of {expected}"
                self._verdict.problem("reads skipped", text)
            self._positions[consumer, partition] = offset + len(event["values"])

    def _note(self, told: dict[int, Log], event: dict[str, Any], how: str) -> None:
        """Nobody may have been told another value for the offset."""
        partition = event["partition"]
        log = told[partition]
        for offset, value in enumerate(event["values"], event["offset"]):
            known = log.setdefault(offset, value)
            if known != value:
                text = f"partition {partition}, offset {offset}: {how} as {known} and as {value}"
                self._verdict.problem("two values", text)

    def on_replica(self, number: int, event: dict[str, Any]) -> None:
        self._verdict.counts["replicas"] += 1
        self._replicas[event["topic"], event["partition"]].append(event)

    # --- the end

    def check_end(self) -> None:
        logs = self._check_replicas()
        for partition, distinct in logs.items():
            for log in distinct:
                self._check_once_and_in_order(partition, log)
                self._answers.check_log(partition, self._sent[partition], log)
        self._check_kept(logs, self._acknowledged, "lost", "was acknowledged")
        self._check_kept(logs, self._read, "vanished", "was read")

    def _check_replicas(self) -> dict[int, list[Log]]:
        """All replicas of a partition are the same, to the byte, up to the high watermark. Returns what there is of
        each partition; more than one only if replicas differ."""
        logs: dict[int, list[Log]] = defaultdict(list)
        for (topic, partition), replicas in self._replicas.items():
            states = {(r["start"], r["high_watermark"], r["digest"]) for r in replicas}
            if len(states) > 1:
                told = ", ".join(
                    f"{r['node']}: [{r['start']}, {r['high_watermark']}) {r['digest'][:8]}" for r in replicas
                )
                self._verdict.problem("replicas differ", f"{topic}-{partition} differs between replicas: {told}")
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
                    self._verdict.problem("two values", text)

    def _check_once_and_in_order(self, partition: int, log: Log) -> None:
        """Every record is there once, and those of a producer in the order in which it sent them."""
        seen: dict[str, int] = {}
        last: dict[str, int] = {}
        for offset, value in sorted(log.items()):
            if value in seen:
                text = f"{value} is at offsets {seen[value]} and {offset} of partition {partition}"
                self._verdict.problem("duplicated", text)
            seen[value] = offset
            sent = self._sent[partition].get(value)
            if sent is None:
                self._verdict.problem("two values", f"{value} in partition {partition} was never sent there")
                continue
            producer, seq = sent
            if seq < last.get(producer, -1):
                text = f"{value} of {producer} comes after a later record in {partition}"
                self._verdict.problem("reordered", text)
            last[producer] = max(seq, last.get(producer, -1))

    def _check_kept(self, logs: dict[int, list[Log]], told: dict[int, Log], kind: str, how: str) -> None:
        """What clients were told is on every replica, where they were told it is."""
        for partition, expected in told.items():
            for offset, value in expected.items():
                found = {log.get(offset) for log in logs.get(partition, ())} or {None}
                if found != {value}:
                    there = next((str(other) for other in found if other != value), "")
                    where = f"at offset {offset} of partition {partition}, where {there} is"
                    self._verdict.problem(kind if None in found else "two values", f"{value} {how} {where}")
                    if how == "was acknowledged" and None not in found:
                        self._verdict.counts["lost"] += 1
