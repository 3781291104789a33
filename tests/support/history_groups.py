"""What `history_check` demands of consumer groups.

Several members are told things at the same time, so nothing is concluded from the order of two events alone: what was
told before a request was sent must be known to its answer. See `history_check` for the events.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from itertools import pairwise
from typing import Any

from support.history_verdict import Verdict

NOTHING = -1
Key = tuple[str, int]  # group, partition


class GroupChecker:
    def __init__(self, verdict: Verdict) -> None:
        self._problem = verdict.problem
        self._counts = verdict.counts
        self._nodes: set[int] = set()
        self._told: dict[Key, list[tuple[int, int]]] = defaultdict(list)
        """(number of the event, offset), both ascending: from then on nobody may be told less."""
        self._offered: dict[Key, set[int]] = defaultdict(set)
        self._owners: dict[tuple[str, int, int], str] = {}
        self._generations: dict[Key, list[tuple[int, int, str]]] = defaultdict(list)
        """(number of the event, generation, member) of those that were told that they have the partition."""
        self._positions: dict[tuple[str, str, int], int] = {}
        self._read: dict[Key, list[tuple[int, int]]] = defaultdict(list)
        self._with_members: set[str] = set()
        self._stored: dict[Key, dict[int, list[int]]] = defaultdict(dict)

    def on_cluster(self, number: int, event: dict[str, Any]) -> None:
        self._nodes = set(event["nodes"])

    def on_assigned(self, number: int, event: dict[str, Any]) -> None:
        group, member, generation = event["group"], event["member"], event["generation"]
        self._counts["assignments"] += 1
        self._counts["operations"] += 1
        self._with_members.add(group)
        for partition in event["partitions"]:
            owner = self._owners.setdefault((group, generation, partition), member)
            if owner != member:
                text = f"{group}, generation {generation}: partition {partition} was given to {owner} and {member}"
                self._problem("two owners", text)
            self._generations[group, partition].append((number, generation, member))

    def on_offer(self, number: int, event: dict[str, Any]) -> None:
        self._offered[event["group"], event["partition"]].add(event["offset"])

    def on_commit(self, number: int, event: dict[str, Any]) -> None:
        key = (event["group"], event["partition"])
        self._counts["commits"] += 1
        self._counts["operations"] += 1
        self._remember(key, number, event["offset"])
        for since, generation, member in reversed(self._generations[key]):
            if since < event["asked"] and generation > event["generation"] and member != event["member"]:
                text = (
                    f"{key[0]}, partition {key[1]}: {event['member']} committed in generation {event['generation']} "
                    f"after {member} had it in {generation}"
                )
                self._problem("commits of the past", text)
                break

    def on_fetched(self, number: int, event: dict[str, Any]) -> None:
        """A group is told at least what was told to have been committed, and only what someone committed."""
        key, offset = (event["group"], event["partition"]), event["offset"]
        self._counts["operations"] += 1
        told = self._told[key]
        at = bisect_left(told, (event["asked"], NOTHING)) - 1
        if at >= 0 and offset < told[at][1]:
            self._problem("commits lost", f"{key[0]}, partition {key[1]}: {offset} after {told[at][1]} was told")
        if offset != NOTHING and offset not in self._offered[key]:
            self._problem("commits invented", f"{key[0]}, partition {key[1]}: nobody committed {offset}")
        self._remember(key, number, offset)
        self._positions[event["group"], event["member"], event["partition"]] = max(offset, 0)

    def _remember(self, key: Key, number: int, offset: int) -> None:
        told = self._told[key]
        if not told or offset > told[-1][1]:
            told.append((number, offset))

    def on_read(self, number: int, event: dict[str, Any]) -> None:
        """A member begins at what was committed, and goes on where it was."""
        if "group" not in event:
            return
        group, member, partition = event["group"], event["consumer"], event["partition"]
        offset, end = event["offset"], event["offset"] + len(event["values"])
        expected = self._positions.get((group, member, partition))
        if expected != offset:
            text = f"{member} of {group} read partition {partition} from {offset} instead of {expected}"
            self._problem("not resumed", text)
        self._positions[group, member, partition] = end
        runs = self._read[group, partition]
        if runs and runs[-1][0] <= offset <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(runs[-1][1], end))
        else:
            runs.append((offset, end))

    def on_stored(self, number: int, event: dict[str, Any]) -> None:
        self._stored[event["group"], event["partition"]][event["node"]] = event["offsets"]

    # --- the end

    def check_end(self) -> None:
        for key, told in self._told.items():
            committed = told[-1][1] if told else NOTHING
            if key[0] in self._with_members:
                self._check_read(key, committed)
            self._check_stored(key, committed)

    def _check_read(self, key: Key, committed: int) -> None:
        """What a group has committed, its members have read: nothing was skipped between one and the next."""
        end = 0
        for start, run_end in sorted(self._read[key]):
            if start > end:
                break
            end = max(end, run_end)
        if end < committed:
            self._problem("unread", f"{key[0]}, partition {key[1]}: {committed} was committed, offset {end} never read")

    def _check_stored(self, key: Key, committed: int) -> None:
        """In the log of the coordinator the offset never falls, on no replica, and ends where clients were told."""
        stored = self._stored.get(key, {})
        for node, offsets in stored.items():
            where = f"{key[0]}, partition {key[1]} on node {node}"
            falls = [(a, b) for a, b in pairwise(offsets) if b < a]
            for before, after in falls:
                self._problem("commits lost", f"{where}: {after} is stored after {before}")
            if not offsets or offsets[-1] < committed:
                self._problem("commits lost", f"{where}: ends at {offsets[-1:]}, but {committed} was told")
        without = sorted(self._nodes - stored.keys())
        if without and committed != NOTHING:
            text = f"{key[0]}, partition {key[1]}: nothing is stored on nodes {without}, {committed} was told"
            self._problem("commits lost", text)
