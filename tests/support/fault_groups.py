"""Consumers in groups for a fault test: what members of both protocols share, and one client that only commits.

A member reads what its group gives it, from where the group has committed, and commits what it has read. Now and then
it leaves, or vanishes without a word, and comes back as another. It lives through the loss of its coordinator as a
client must: by asking for the next one.

Asking and being told are not one moment, and other members are told things in between. So what was asked for carries
the number of events in the history at the time ("asked"): only what was told before can be expected in the answer.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from support.fault_answers import OFFSET_COMMIT, OFFSET_FETCH, RETRIABLE
from support.fault_clients import Client

from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics

COMMIT_S = 0.1
LIFE_S = (4.0, 25.0)

REJOIN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH})
THROWN_OUT = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})


class GroupClient(Client):
    """Finds the coordinator of its group, commits offsets and asks for them."""

    group: str

    def __init__(self, name: str, group: str, *rest: Any) -> None:
        super().__init__(name, *rest)
        self.group = group
        self.member_id = ""
        self.generation = -1
        self._coordinator: int | None = None
        self._before_coordinator: int | None = None

    def ask_coordinator(self, request: Any, version: int, timeout_s: float | None = None) -> Any:
        if self._coordinator is None:
            finding = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group])
            found = self.ask_any(finding, 4, self._before_coordinator)
            if found is None:
                return None
            if self.answered("find coordinator", found.coordinators[0].error_code, RETRIABLE):
                return None
            self._coordinator = self._before_coordinator = found.coordinators[0].node_id
        rest = () if timeout_s is None else (timeout_s,)
        answer = self.ask(self._coordinator, request, version, *rest)
        if answer is None:
            self._coordinator = None
        return answer

    def decide(self, request: str, code: int, retried: Collection[ErrorCode]) -> ErrorCode:
        """The error; unless it is about the member, the coordinator is looked for again."""
        error = self.answered(request, code, retried)
        if error is not ErrorCode.NONE and error not in REJOIN | THROWN_OUT:
            self._coordinator = None
        return error

    def commit_offsets(self, offsets: dict[int, int]) -> ErrorCode | None:
        """None when there was no answer."""
        asked = self.history.count
        told = {"group": self.group, "member": self.member_id, "generation": self.generation, "asked": asked}
        for partition, offset in offsets.items():
            self.history.add("offer", group=self.group, partition=partition, offset=offset)
        parts = [
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=self.read_epochs.get(partition, -1),
                committed_metadata="",
            )
            for partition, offset in offsets.items()
        ]
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=parts)],
        )
        answer = self.ask_coordinator(request, 9)
        if answer is None:
            return None
        worst = ErrorCode.NONE
        for part in answer.topics[0].partitions:
            error = self.decide("offset commit", part.error_code, OFFSET_COMMIT)
            if error is ErrorCode.NONE:
                index = part.partition_index
                self.history.add("commit", partition=index, offset=offsets[index], **told)
            else:
                worst = error
        return worst

    def fetch_offsets(self, partitions: Iterable[int]) -> dict[int, int] | ErrorCode | None:
        """What the group has committed, -1 for nothing; or the error, or None when there was no answer."""
        asked = self.history.count
        group = OffsetFetchRequestGroup(
            group_id=self.group,
            member_id=self.member_id or None,
            member_epoch=self.generation,
            topics=[OffsetFetchRequestTopics(name=self.topic, partition_indexes=sorted(partitions))],
        )
        answer = self.ask_coordinator(OffsetFetchRequest(groups=[group], require_stable=True), 9)
        if answer is None:
            return None
        (found,) = answer.groups
        error = self.decide("offset fetch", found.error_code, OFFSET_FETCH)
        if error is not ErrorCode.NONE:
            return error
        offsets: dict[int, int] = {}
        for part in found.topics[0].partitions:
            error = self.decide("offset fetch", part.error_code, OFFSET_FETCH)
            if error is not ErrorCode.NONE:
                return error
            offsets[part.partition_index] = part.committed_offset
            self.demand_epoch(part.partition_index, part.committed_leader_epoch)
        for partition, offset in offsets.items():
            self.history.add(
                "fetched", group=self.group, member=self.member_id, partition=partition, offset=offset, asked=asked
            )
        return offsets


class Committer(GroupClient):
    """Commits ever larger offsets for a group without members, and asks every time what they are."""

    def __init__(self, name: str, partitions: Sequence[int], *rest: Any) -> None:
        super().__init__(name, name, *rest)
        self.partitions = partitions

    def work(self) -> None:
        offset = 0
        while not self.stopping.is_set():
            offset += 1
            partition = self.partitions[offset % len(self.partitions)]
            wanted = {partition: offset}
            if self.until(lambda w=wanted: self.commit_offsets(w) is ErrorCode.NONE):  # type: ignore[misc]
                self.until(lambda w=wanted: isinstance(self.fetch_offsets(w), dict))  # type: ignore[misc]
            self.stopping.wait(0.02)


class Member(GroupClient):
    """One member after another under one name; `positions` is what the present one has."""

    def __init__(self, name: str, group: str, partition_count: int, *rest: Any) -> None:
        super().__init__(name, group, *rest)
        self.partition_count = partition_count
        self.stays = False
        """Set in the end: nobody leaves any more."""
        self.positions: dict[int, int] = {}
        self.committed: dict[int, int] = {}
        self._commit_at = 0.0

    def work(self) -> None:
        while not self.stopping.is_set():
            ends_at = time.monotonic() + self.rng.uniform(*LIFE_S)
            self.forget()
            while not self.stopping.is_set() and (self.stays or time.monotonic() < ends_at):
                self.live()
            if self.stopping.is_set() or self.rng.random() < 0.5:
                self.commit()
                self.leave()
                self.history.add("left", group=self.group, member=self.member_id)
            else:
                self.history.add("vanished", group=self.group, member=self.member_id)

    def live(self) -> None:
        """One round: keep the membership, then read a little and commit it."""
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    def forget(self) -> None:
        """Another member from now on."""
        self.member_id, self.generation = "", -1
        self.give_up(set(self.positions))

    def give_up(self, partitions: set[int]) -> None:
        for partition in partitions:
            self.positions.pop(partition, None)
            self.read_epochs.pop(partition, None)
            self.committed.pop(partition, None)

    def take(self, partitions: set[int]) -> ErrorCode | None:
        """Goes on where the group has committed."""
        if not partitions:
            return ErrorCode.NONE
        found = self.fetch_offsets(partitions)
        if not isinstance(found, dict):
            return found
        for partition, offset in found.items():
            self.positions[partition] = max(offset, 0)
        self.committed.update(found)
        return ErrorCode.NONE

    def consume(self) -> ErrorCode | None:
        """Reads from each partition once, and commits when it is time."""
        for partition, position in list(self.positions.items()):
            if self.stopping.is_set():
                break
            values = self.read(partition, position)
            if values:
                self.history.add(
                    "read",
                    consumer=self.member_id,
                    group=self.group,
                    partition=partition,
                    offset=position,
                    values=values,
                )
                self.positions[partition] = position + len(values)
            if time.monotonic() >= self.beat_at:
                break
        return self.commit() if time.monotonic() >= self._commit_at else ErrorCode.NONE

    @property
    def beat_at(self) -> float:
        raise NotImplementedError

    def commit(self) -> ErrorCode | None:
        self._commit_at = time.monotonic() + COMMIT_S
        wanted = {p: o for p, o in self.positions.items() if o != self.committed.get(p) and o > 0}
        if not wanted:
            return ErrorCode.NONE
        error = self.commit_offsets(wanted)
        if error is ErrorCode.NONE:
            self.committed.update(wanted)
        return error

    def told(self, partitions: Iterable[int]) -> None:
        self.history.add(
            "assigned",
            group=self.group,
            member=self.member_id,
            generation=self.generation,
            partitions=sorted(partitions),
        )
