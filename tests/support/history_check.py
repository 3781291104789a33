"""Checks a history of clients and faults against the promises of replication. A program of its own:

    python -m support.history_check FILE

Events, each with "ms" and "op"; "asked" is the number of events before the one that asked:
  cluster  nodes, topics, groups                 the first event: what the history must tell of in the end. A topic has
                                                 name, partitions, replicas (nodes), has_values (it is the one that is
                                                 written and read) and has_offsets (it is the groups'); a group has
                                                 name and has_members
  plan     seconds, isolates, java               what the run was to be: faults of networks, too, and Kafka's producer
                                                 (`fault_demands`); not every history has one
  left_out what, why                             something this history should have had, and could not
  begin, end                                     of the clients' load
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
  fault    kind, nodes, unsettled?, may_end?, role?   something is broken. unsettled: something else still was; may_end:
                                                 a node cannot go on with that disk; role: what the node was
  healed   hits?                                 the cause of the last fault is gone; how often its disk refused
  ended    node, code, cause, usual?             a process ended: by itself, on SIGTERM (after which its code should be
                                                 `usual`, or 0), or killed, because it did not stop
  replica  node, topic, partition, start, end, high_watermark, digest, values   a replica in the end: records from
                                                 start on, the digest of its bytes below high_watermark; the values of
                                                 internal topics are left out
  stored   node, group, partition, offsets       all offsets of a group in a replica of __consumer_offsets, in order
  trace    node, text                            a node's log has the trace of an error that nobody expected
  failed   text                                  the run came to no good end
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from support.fault_demands import complaints
from support.history import read_history
from support.history_answers import AnswerChecker
from support.history_groups import GroupChecker
from support.history_life import LifeChecker
from support.history_records import RecordChecker
from support.history_verdict import Verdict
from support.history_whole import WholeChecker

NOTHING_TO_CHECK = ("plan", "left", "vanished")


class Checker:
    """Takes the events once, in order."""

    def __init__(self) -> None:
        self.verdict = Verdict()
        self._whole = WholeChecker(self.verdict)
        self._life = LifeChecker(self.verdict)
        self._answers = AnswerChecker(self.verdict)
        self._records = RecordChecker(self.verdict, self._answers)
        self._groups = GroupChecker(self.verdict)

    def check(self, events: Iterable[dict[str, Any]]) -> Verdict:
        parts = (self._whole, self._life, self._answers, self._records, self._groups)
        last_ms, plan = 0, None
        for number, event in enumerate(events):
            op = event["op"]
            takers = [getattr(part, f"on_{op}", None) for part in parts]
            if not any(takers) and op not in NOTHING_TO_CHECK:
                self.verdict.problem("unknown events", f"{op} at {event['ms']} ms")
            for take in takers:
                if take is not None:
                    take(number, event)
            last_ms = event["ms"]
            plan = event if op == "plan" else plan
        self._whole.check_end()
        self._life.check_end(last_ms)
        if not self._whole.is_cut_off:
            self._records.check_end()
            self._groups.check_end()
        if plan is not None:
            for text in complaints(self.verdict, plan["seconds"], isolates=plan["isolates"], has_java=plan["java"]):
                self.verdict.problem("too little", text)
        return self.verdict


def check(path: Path) -> Verdict:
    return Checker().check(read_history(path))


if __name__ == "__main__":
    result = check(Path(sys.argv[1]))
    print(result.report())
    sys.exit(0 if result.is_good else 1)
