"""What `history_check` demands of single answers, and of producers with several batches under way.

See `history_check` for the events.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import Any

from support.history_verdict import Verdict

Log = dict[int, str]  # offset -> value
Sent = dict[str, tuple[str, int]]  # value -> producer, number

NOWHERE = -1
"""The offset of an acknowledgement that says that records are stored, not where (DUPLICATE_SEQUENCE_NUMBER)."""


class AnswerChecker:
    def __init__(self, verdict: Verdict) -> None:
        self._problem = verdict.problem
        self._counts = verdict.counts
        self._latest: dict[int, list[tuple[int, int]]] = defaultdict(list)
        """(number of the event, offset), both ascending: who asks from then on may not be told less."""
        self._stored_somewhere: dict[int, set[str]] = defaultdict(set)

    def on_refused(self, number: int, event: dict[str, Any]) -> None:
        text = f"{event['client']}: {event['code']} for {event['request']} would reach the application"
        self._problem("refused", text)

    def on_again(self, number: int, event: dict[str, Any]) -> None:
        self._counts["windows sent again"] += event["batches"] > 1

    def on_gap(self, number: int, event: dict[str, Any]) -> None:
        """Nothing is ever deleted while a history is made, so a leader that expects another sequence than the next
        one has lost records, or has forgotten whose they are."""
        text = (
            f"{event['producer']}, partition {event['partition']}: node {event['node']} answered {event['code']} to "
            f"record {event['seq']}, though all before it were acknowledged"
        )
        self._problem("gaps", text)

    def on_ack(self, number: int, event: dict[str, Any]) -> None:
        if event["offset"] == NOWHERE:
            self._stored_somewhere[event["partition"]].update(event["values"])

    def on_read(self, number: int, event: dict[str, Any]) -> None:
        if event.get("from_follower"):
            self._counts["read from followers"] += len(event["values"])

    def on_latest(self, number: int, event: dict[str, Any]) -> None:
        """Spark's connector takes an end that goes backwards for lost data."""
        told, offset = self._latest[event["partition"]], event["offset"]
        self._counts["latest offsets"] += 1
        self._counts["operations"] += 1
        at = bisect_left(told, (event["asked"], NOWHERE)) - 1
        if at >= 0 and offset < told[at][1]:
            text = f"partition {event['partition']}: the latest offset was {told[at][1]} and then {offset}"
            self._problem("latest went back", text)
        if not told or offset > told[-1][1]:
            told.append((number, offset))

    # --- the end

    def check_log(self, partition: int, sent: Sent, log: Log) -> None:
        """Of each producer a log has a prefix of what was sent: with several batches under way a later one may not
        be stored without the earlier ones. Nothing can be said of a log whose beginning is gone."""
        stored = set(log.values())
        for value in self._stored_somewhere[partition] - stored:
            self._problem("lost", f"{value} was acknowledged, and is nowhere in partition {partition}")
        if 0 not in log:
            return
        missing: dict[str, tuple[int, str]] = {}
        for value, (producer, number) in sent.items():
            if value not in stored:
                missing[producer] = min(missing.get(producer, (number, value)), (number, value))
        last: dict[str, tuple[int, str]] = {}
        for value in stored & sent.keys():
            producer, number = sent[value]
            last[producer] = max(last.get(producer, (number, value)), (number, value))
        for producer, (number, value) in missing.items():
            if number < last.get(producer, (NOWHERE, ""))[0]:
                later = last[producer][1]
                self._problem("overtaken", f"{later} of {producer} is in partition {partition}, {value} is not")
