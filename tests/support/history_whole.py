"""What `history_check` demands of a history before it believes it: that nothing is missing.

A history in which something was never noted has no contradictions. So the first event declares what there is, and what
is not told of in the end is a problem.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from support.history_answers import NOWHERE
from support.history_life import ON_SIGTERM
from support.history_verdict import Verdict

Place = tuple[str, int, int]  # topic, partition, node


class WholeChecker:
    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self._cluster: dict[str, Any] | None = None
        self._seen: Counter[str] = Counter()
        self._replicas: dict[Place, dict[str, Any]] = {}
        self._told_end: dict[int, int] = defaultdict(int)
        """By partition, the end of what clients were told is committed."""
        self._read: set[int] = set()
        self._committed: set[str] = set()
        self._stopped: set[int] = set()

    def incomplete(self, text: str) -> None:
        self._verdict.problem("incomplete", text)

    @property
    def is_cut_off(self) -> bool:
        """It ends in the middle of the run: of what was told, nothing can be compared."""
        return self._seen["end"] == 0 and not self._replicas

    # --- events

    def on_cluster(self, number: int, event: dict[str, Any]) -> None:
        self._cluster = event
        if number != 0:
            self.incomplete("the history does not begin with what the cluster is like")

    def on_begin(self, number: int, event: dict[str, Any]) -> None:
        self._seen["begin"] += 1

    def on_end(self, number: int, event: dict[str, Any]) -> None:
        self._seen["end"] += 1

    def on_left_out(self, number: int, event: dict[str, Any]) -> None:
        self._verdict.left_out.append(f"{event['what']}: {event['why']}")

    def on_failed(self, number: int, event: dict[str, Any]) -> None:
        self._verdict.problem("the run failed", event["text"])

    def on_ack(self, number: int, event: dict[str, Any]) -> None:
        self._verdict.acknowledged_in[event["partition"]] += len(event["values"])
        self._verdict.acknowledged_by[event["producer"]] += len(event["values"])
        if event["offset"] != NOWHERE:
            self._tell(event)

    def on_read(self, number: int, event: dict[str, Any]) -> None:
        self._read.add(event["partition"])
        self._tell(event)

    def _tell(self, event: dict[str, Any]) -> None:
        end = event["offset"] + len(event["values"])
        self._told_end[event["partition"]] = max(self._told_end[event["partition"]], end)

    def on_commit(self, number: int, event: dict[str, Any]) -> None:
        self._verdict.commits[event["group"]] += 1
        self._committed.add(event["group"])

    def on_assigned(self, number: int, event: dict[str, Any]) -> None:
        self._verdict.assignments[event["group"]] += 1

    def on_ended(self, number: int, event: dict[str, Any]) -> None:
        if self._seen["end"] and event["cause"] == ON_SIGTERM:
            self._stopped.add(event["node"])

    def on_replica(self, number: int, event: dict[str, Any]) -> None:
        place = event["topic"], event["partition"], event["node"]
        if place in self._replicas:
            self.incomplete(f"node {place[2]} told of {place[0]}-{place[1]} twice")
        self._replicas[place] = event

    # --- the end

    def check_end(self) -> None:
        if self._cluster is None:
            return self.incomplete("the history does not say what the cluster is like")
        for name in ("begin", "end"):
            if self._seen[name] != 1:
                self.incomplete(f"the load has {self._seen[name]} events '{name}' instead of one")
        if self.is_cut_off:
            return self.incomplete("the history is cut off: what clients were told cannot be compared with replicas")
        self._check_groups(self._cluster)
        self._check_replicas(self._cluster)
        for node in sorted(set(self._cluster["nodes"]) - self._stopped):
            self.incomplete(f"node {node} was not stopped in the end")
        return None

    def _check_groups(self, cluster: dict[str, Any]) -> None:
        for group in cluster["groups"]:
            if group["name"] not in self._committed:
                self.incomplete(f"group {group['name']} has committed nothing")
            if group["has_members"] and not self._verdict.assignments[group["name"]]:
                self.incomplete(f"nobody in group {group['name']} was told what it has")
        if self._committed and not any(topic["has_offsets"] for topic in cluster["topics"]):
            self.incomplete("groups have committed, but nothing is known of the topic with their offsets")

    def _check_replicas(self, cluster: dict[str, Any]) -> None:
        left = dict(self._replicas)
        for topic in cluster["topics"]:
            for partition in range(topic["partitions"]):
                found = [left.pop((topic["name"], partition, node), None) for node in topic["replicas"]]
                for node, replica in zip(topic["replicas"], found, strict=True):
                    where = f"{topic['name']}-{partition} on node {node}"
                    if replica is None:
                        self.incomplete(f"there is no {where}")
                    elif topic["has_values"]:
                        self._check_values(where, replica)
                if topic["has_values"] and partition not in self._read:
                    self.incomplete(f"nobody has read partition {partition}")
            of_topic = [replica for place, replica in self._replicas.items() if place[0] == topic["name"]]
            if topic["has_offsets"] and self._committed and not any(one["high_watermark"] for one in of_topic):
                self.incomplete(f"groups have committed, but nothing is committed in {topic['name']}")
        for name, partition, node in left:
            self.incomplete(f"nobody expected {name}-{partition} on node {node}")

    def _check_values(self, where: str, replica: dict[str, Any]) -> None:
        start, end, high_watermark = replica["start"], replica["end"], replica["high_watermark"]
        if replica["values"] is None or len(replica["values"]) != high_watermark - start or high_watermark > end:
            told = None if replica["values"] is None else len(replica["values"])
            self.incomplete(f"{where}: {told} records in [{start}, {end}), high watermark {high_watermark}")
        if self._told_end[replica["partition"]] > high_watermark:
            text = f"{where} is committed up to {high_watermark}, {self._told_end[replica['partition']]} was told"
            self._verdict.problem("lost", text)
