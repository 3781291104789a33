"""What `history_check` demands of nodes and partitions: no node ended that had no reason to, no partition stood still.

Whether a partition stood still is seen by its acknowledgements alone, between the beginning of the clients' load and
its end: silence from the beginning on, or up to the end, is a pause like any other.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

from support.history_verdict import Verdict

MIN_ISR_LOST = 2
"""With so many of three nodes broken, a partition has fewer than two replicas, and must not acknowledge."""
STALLED_MS = 60_000
"""No fault of these tests lasts a sixth of that, and no recovery was seen to take half of it."""
GAVE_UP = 1
"""The exit code of a node that cannot go on with the disk it has."""
BY_ITSELF, ON_SIGTERM, KILLED = "by itself", "SIGTERM", "SIGKILL after SIGTERM"


class LifeChecker:
    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self._partitions: set[int] = set()
        self._acks: dict[int, list[tuple[int, int]]] = defaultdict(list)
        """(number, ms) of the events, by partition."""
        self._load: dict[str, int] = {}
        self._fault: dict[str, Any] | None = None
        self._calm_since = -1
        """The number of the event that broke or mended something last."""
        self._excused: set[int] = set()
        """Nodes that have, or just had, a disk without which they cannot go on."""
        self._below_min_isr: list[tuple[int, int]] = []

    def on_cluster(self, number: int, event: dict[str, Any]) -> None:
        self._partitions = {at for topic in event["topics"] if topic["has_values"] for at in range(topic["partitions"])}

    def on_begin(self, number: int, event: dict[str, Any]) -> None:
        self._load["begin"] = event["ms"]

    def on_end(self, number: int, event: dict[str, Any]) -> None:
        self._load["end"] = event["ms"]

    def on_ack(self, number: int, event: dict[str, Any]) -> None:
        self._acks[event["partition"]].append((number, event["ms"]))

    def on_fault(self, number: int, event: dict[str, Any]) -> None:
        self._close_fault(event["ms"])
        self._verdict.faults[event["kind"]] += 1
        self._verdict.struck_unsettled += bool(event.get("unsettled"))
        if not event.get("unsettled"):
            self._excused.clear()  # since then every node was seen alive and in sync
        self._excused -= set(event["nodes"])
        if event.get("may_end"):
            self._excused |= set(event["nodes"])
        self._fault = event
        self._calm_since = number

    def on_healed(self, number: int, event: dict[str, Any]) -> None:
        if self._fault is not None and "hits" in event:
            self._verdict.hits[self._fault["kind"]] += event["hits"]
            self._verdict.bites[self._fault["kind"]] += event["hits"] > 0
        self._close_fault(event["ms"])
        self._calm_since = number

    def _close_fault(self, ms: int) -> None:
        fault, self._fault = self._fault, None
        if fault is not None and (len(fault["nodes"]) >= MIN_ISR_LOST or fault.get("unsettled")):
            self._below_min_isr.append((fault["ms"], ms))

    def on_ended(self, number: int, event: dict[str, Any]) -> None:
        node, code, cause = event["node"], event["code"], event["cause"]
        excuse = {GAVE_UP} if node in self._excused else set()
        self._excused.discard(node)
        if cause == BY_ITSELF and code not in excuse:
            self._verdict.problem("ended by itself", f"node {node}, with code {code}")
        elif cause == KILLED:
            self._verdict.problem("did not stop", f"node {node} had to be killed")
        elif cause == ON_SIGTERM and code not in excuse | {event.get("usual", 0)}:
            self._verdict.problem("did not stop", f"node {node} ended with code {code} on SIGTERM")
        elif cause not in (BY_ITSELF, ON_SIGTERM, KILLED):
            self._verdict.problem("ended by itself", f"node {node}, for an unknown reason: {cause}")

    def on_trace(self, number: int, event: dict[str, Any]) -> None:
        self._verdict.problem("error traces", f"node {event['node']}: {event['text']}")

    # --- the end

    def check_end(self, last_ms: int) -> None:
        self._close_fault(last_ms)
        for partition in sorted(self._partitions | self._acks.keys()):
            acks = self._acks[partition]
            if not acks:
                self._verdict.problem("stalled", f"nothing was ever acknowledged in partition {partition}")
            elif "end" in self._load and acks[-1][0] < self._calm_since:
                text = f"after the last fault nothing was acknowledged in partition {partition} any more"
                self._verdict.problem("stalled", text)
            self._check_pauses(partition, [ms for _, ms in acks])

    def _check_pauses(self, partition: int, acked_ms: list[int]) -> None:
        """Between two acknowledgements, or one and the load's beginning or end. Pauses that a fault of too many nodes
        lies in are told apart; but no pause is for ever."""
        for before, after in pairwise(sorted([*acked_ms, *self._load.values()])):
            length = after - before
            self._verdict.longest_total_pause_ms = max(self._verdict.longest_total_pause_ms, length)
            if length >= STALLED_MS:
                text = f"nothing was acknowledged in partition {partition} from {before} to {after} ms"
                self._verdict.problem("stalled", text)
            if length > self._verdict.longest_pause_ms and not any(
                start < after and before < end for start, end in self._below_min_isr
            ):
                self._verdict.longest_pause_ms = length
