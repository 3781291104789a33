"""Leads an epoch: how far everyone is, who waits for what, whether it still has a majority behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from controller.raft.arithmetic import UNKNOWN_OFFSET, committed_offset, majority
from controller.raft.roles.base import Role
from controller.raft.types import Endpoint, Fetch, ReplicaKey, Voter, VoterSet
from controller.raft.voters import find_replica

OBSERVER_SESSION_MS = 300_000  # Kafka's: an observer silent for five minutes is no longer described
CAUGHT_UP_WITHIN_MS = 3_600_000  # Kafka's: a new voter must have fetched within the last hour


@dataclass(slots=True)
class Progress:
    """Of one replica, as its fetches tell. Fetching from an offset says that everything below is durable there."""

    end_offset: int = UNKNOWN_OFFSET
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    leader_end_at_last_fetch: int = -1

    def on_fetch(self, offset: int, leader_end: int, now_ms: int) -> None:
        if offset >= leader_end:
            self.last_caught_up_ms = now_ms
        elif self.leader_end_at_last_fetch >= 0 and offset >= self.leader_end_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.end_offset = offset
        self.last_fetch_ms = now_ms
        self.leader_end_at_last_fetch = leader_end


class WaitingFetch(NamedTuple):
    """Held until there is something to tell."""

    token: object
    request: Fetch
    deadline_ms: int


@dataclass(slots=True)
class VoterChange:
    """The one change of the voter set that is under way. ``offset`` is its record's, None while the new voter is
    asked what it supports; ``token`` is None once it was answered."""

    token: object
    deadline_ms: int
    added: Voter | None = None
    ack_when_committed: bool = True
    offset: int | None = None


class Leader(Role):
    name = "Leader"

    def __init__(
        self,
        epoch: int,
        me: ReplicaKey,
        endpoints: tuple[Endpoint, ...],
        epoch_start: int,
        granting: frozenset[int],
        now_ms: int,
        fetch_timeout_ms: int,
    ) -> None:
        super().__init__(epoch, me.id, me)
        self.me = me
        self.leader_endpoints = endpoints
        self.epoch_start = epoch_start
        """Where this epoch's first record, the LeaderChange, is. Nothing counts as committed before it is: an older
        record on a majority may still be overwritten by a leader of an epoch in between."""
        self.granting = granting
        self.progress: dict[ReplicaKey, Progress] = {}
        self.waiting: list[WaitingFetch] = []
        self.is_ready = False
        """The high watermark of this epoch is known."""
        self.change: VoterChange | None = None
        self.must_resign = False
        self.supported: dict[int, Voter] = {}
        """What voters of a static quorum told about themselves, for the day kraft.version is raised."""
        self._check_quorum_ms = fetch_timeout_ms * 3 // 2
        self._heard: set[ReplicaKey] = set()
        self.quorum_deadline_ms = now_ms + self._check_quorum_ms
        self.begin_interval_ms = max(fetch_timeout_ms // 2, 1)
        self.begin_deadline_ms = now_ms

    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        return is_pre_vote and is_up_to_date and not self.is_ready

    def replica_key(self, replica: ReplicaKey, voters: VoterSet) -> ReplicaKey:
        """The key under which a replica is known: that of the voter it is, else its own."""
        voter = find_replica(voters, replica)
        return voter.key if voter is not None else replica

    def on_fetch(self, replica: ReplicaKey, offset: int, leader_end: int, voters: VoterSet, now_ms: int) -> None:
        key = self.replica_key(replica, voters)
        self.progress.setdefault(key, Progress()).on_fetch(offset, leader_end, now_ms)
        self.heard_from(replica, voters, now_ms)

    def heard_from(self, replica: ReplicaKey, voters: VoterSet, now_ms: int) -> None:
        """Check quorum: the deadline moves on only when a majority was heard from since it last moved."""
        voter = find_replica(voters, replica)
        if voter is None:
            return
        self._heard.add(voter.key)
        needed = majority(len(voters)) - (find_replica(voters, self.me) is not None)
        if len(self._heard & {other.key for other in voters}) >= needed:
            self._heard.clear()
            self.quorum_deadline_ms = now_ms + self._check_quorum_ms

    def on_voters_changed(self, now_ms: int) -> None:
        """A new set gets its time to be heard; a leader that was alone has not been listening. Only one change can be
        uncommitted, so this does not keep a leader in office that nobody hears."""
        self.quorum_deadline_ms = max(self.quorum_deadline_ms, now_ms + self._check_quorum_ms)
        self.begin_deadline_ms = now_ms

    def has_lost_quorum(self, voters: VoterSet, now_ms: int) -> bool:
        return now_ms >= self.quorum_deadline_ms and self._needs_others(voters)

    def _needs_others(self, voters: VoterSet) -> bool:
        return any(find_replica((voter,), self.me) is None for voter in voters)

    def committed(self, voters: VoterSet, own_durable_end: int) -> int:
        """What may count as committed now, -1 if nothing of this epoch does."""
        acked = {key: progress.end_offset for key, progress in self.progress.items()}
        own = find_replica(voters, self.me)
        if own is not None:
            acked[own.key] = own_durable_end
        offset = committed_offset(acked, (voter.key for voter in voters))
        return offset if offset > self.epoch_start else UNKNOWN_OFFSET

    def is_caught_up(self, key: ReplicaKey, now_ms: int) -> bool:
        progress = self.progress.get(key)
        return (
            progress is not None
            and progress.last_caught_up_ms >= 0
            and progress.last_fetch_ms > now_ms - CAUGHT_UP_WITHIN_MS
        )

    def successors(self, voters: VoterSet) -> tuple[ReplicaKey, ...]:
        """The other voters, the one with the longest log first."""
        others = [voter.key for voter in voters if find_replica((voter,), self.me) is None]
        ends = {key: self.progress.get(key, Progress()).end_offset for key in others}
        return tuple(sorted(others, key=lambda key: (-ends[key], key)))
