"""The only place that swaps roles.

Each swap that changes the epoch, the leader or the vote leaves an ``ElectionState`` among the effects, before anything
the new role wants written or sent.

===========  ===========  =========================================================================================
from         to           when
===========  ===========  =========================================================================================
any          Unattached   a higher epoch without a leader whose address is known
any          Follower     a higher epoch with such a leader
Unattached   Voted        granted a vote
Unattached   Prospective  (voter) no leader within the election time-out
Unattached   Follower     learned who leads this epoch
Unattached   Unattached   learned who leads this epoch, but not where it is
Voted        Prospective  (voter) no leader within the election time-out
Voted        Follower     learned who leads this epoch
Voted        Voted        learned who leads this epoch, but not where it is
Prospective  Candidate    a majority would vote for it; the epoch grows
Prospective  Follower     learned who leads, or lost the pre-vote while it knows a leader
Prospective  Unattached   lost the pre-vote and knows no leader
Prospective  Voted        the same, after a vote in this epoch
Prospective  Prospective  granted a vote
Candidate    Leader       a majority voted for it
Candidate    Prospective  not elected within the election time-out
Candidate    Follower     learned who leads this epoch
Leader       Resigned     told to, lost its majority, or removed itself from the voters
Follower     Prospective  (voter) no successful fetch within the fetch time-out, or the leader resigned
Follower     Follower     learned the leader's new address
Resigned     Unattached   its time is up: it goes into the next epoch, since in its own it must never act again
===========  ===========  =========================================================================================

At start: Resigned if it led the epoch it remembers, Candidate if it voted for itself, Follower or Unattached otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from controller.raft.arithmetic import election_timeout
from controller.raft.roles.base import Role
from controller.raft.roles.candidate import Candidate
from controller.raft.roles.follower import Follower
from controller.raft.roles.leader import Leader
from controller.raft.roles.prospective import Prospective
from controller.raft.roles.resigned import Resigned
from controller.raft.roles.unattached import Unattached, Voted
from controller.raft.types import (
    NO_DEADLINE,
    NOBODY,
    ElectionState,
    Endpoint,
    OffsetEpoch,
    RaftError,
    ReplicaKey,
    Settings,
)
from controller.raft.voters import VoterHistory, find_replica, find_voter

_WITHIN_AN_EPOCH: dict[type[Role], tuple[type[Role], ...]] = {
    Unattached: (Unattached, Voted, Prospective, Follower),
    Voted: (Voted, Prospective, Follower),
    Prospective: (Prospective, Unattached, Voted, Follower),
    Candidate: (Leader, Prospective, Follower),
    Leader: (Resigned,),
    Follower: (Follower, Prospective),
    Resigned: (),
}
_WITH_A_HIGHER_EPOCH: dict[type[Role], tuple[type[Role], ...]] = {
    **dict.fromkeys(_WITHIN_AN_EPOCH, (Unattached, Follower)),
    Prospective: (Unattached, Follower, Candidate),
}


class IllegalTransition(RaftError):
    """A bug of the core, never a peer's doing."""


class Quorum:
    def __init__(
        self,
        me: ReplicaKey,
        *,
        is_controller: bool,
        endpoints: tuple[Endpoint, ...],
        history: VoterHistory,
        settings: Settings,
        random: Random,
        on_change: Callable[[Role, Role], None],
    ) -> None:
        self._me = me
        self._is_controller = is_controller
        self._endpoints = endpoints
        self._history = history
        self._settings = settings
        self._random = random
        self._on_change = on_change
        self.role: Role = Unattached(0, NO_DEADLINE)

    def restore(self, remembered: ElectionState, last: OffsetEpoch, now_ms: int) -> None:
        """The role after a restart. What is remembered may be older than the log; the log's epoch counts then."""
        epoch, leader_id, voted = remembered if remembered.epoch >= last.epoch else ElectionState(last.epoch)
        if leader_id == self._me.id and self.is_voter and len(self.voter_ids) == 1:
            # Nobody else can hold what it lost, and nobody else can lead: it stands at once, in the next epoch.
            self.role = self._unattached(epoch, now_ms, leader_id, voted)
        elif leader_id == self._me.id:
            # Whatever it appended in that epoch may be lost here and live on elsewhere: it must not append there again.
            self.role = Resigned(epoch, leader_id, self.voter_ids, (), self._election_deadline(now_ms), voted)
        elif voted == self._me and leader_id == NOBODY and self.is_voter:
            self.role = Candidate(epoch, self.voter_ids, self._me.id, self._election_deadline(now_ms), voted=voted)
        elif leader_id != NOBODY and self.endpoints_in_set(leader_id):
            self.role = self._follower(epoch, leader_id, self.endpoints_in_set(leader_id), now_ms, voted)
        else:
            self.role = self._unattached(epoch, self._election_deadline(now_ms), leader_id, voted)

    # What the role stands on

    @property
    def is_voter(self) -> bool:
        return self._is_controller and find_replica(self._history.voters, self._me) is not None

    @property
    def voter_ids(self) -> list[int]:
        return [voter.key.id for voter in self._history.voters]

    def endpoints_in_set(self, voter_id: int) -> tuple[Endpoint, ...]:
        voter = find_voter(self._history.voters, voter_id)
        return voter.endpoints if voter is not None else ()

    def _election_deadline(self, now_ms: int) -> int:
        return now_ms + election_timeout(self._settings.election_timeout_ms, self._random)

    def _left_to_wait(self, now_ms: int) -> int:
        """The time a node has waited for a leader counts on in its next role; a fresh wait if there is none left."""
        deadline_ms = self.role.election_deadline_ms
        return deadline_ms if now_ms < deadline_ms < NO_DEADLINE else self._election_deadline(now_ms)

    # Swaps

    def become_unattached(self, epoch: int, now_ms: int, leader_id: int = NOBODY) -> None:
        voted = self.role.voted if epoch == self.role.epoch else None
        self._swap(self._unattached(epoch, self._left_to_wait(now_ms), leader_id, voted))

    def grant_vote(self, candidate: ReplicaKey, now_ms: int) -> None:
        role = self.role
        if role.voted == candidate:
            return
        if role.voted is not None:
            raise IllegalTransition(f"{role} has voted for {role.voted.id} and cannot vote for {candidate.id}")
        if isinstance(role, Prospective):
            new = Prospective(
                role.epoch, role.voter_ids, self._me.id, role.election_deadline_ms, role.leader_id, candidate
            )
            new.granted, new.rejected = role.granted, role.rejected
            new.leader_endpoints = role.leader_endpoints
            self._swap(new)
        else:
            # A vote given away is a reason to wait for the one who got it.
            self._swap(Voted(role.epoch, self._election_deadline(now_ms), candidate, role.leader_id))

    def become_follower(self, epoch: int, leader_id: int, endpoints: tuple[Endpoint, ...], now_ms: int) -> None:
        if leader_id == self._me.id or leader_id == NOBODY:
            raise IllegalTransition(f"{self.role} cannot become a follower of {leader_id}")
        voted = self.role.voted if epoch == self.role.epoch else None
        known = self.role.leader_id
        if epoch == self.role.epoch and known not in (NOBODY, leader_id):
            raise IllegalTransition(f"{self.role} cannot follow {leader_id} in the same epoch: it has a leader")
        self._swap(self._follower(epoch, leader_id, endpoints, now_ms, voted))

    def become_prospective(self, now_ms: int) -> None:
        role = self.role
        if not self.is_voter:
            raise IllegalTransition(f"{role} cannot become Prospective: it is no voter")
        deadline_ms = self._election_deadline(now_ms)
        new = Prospective(role.epoch, self.voter_ids, self._me.id, deadline_ms, role.leader_id, role.voted)
        new.leader_endpoints = role.leader_endpoints
        self._swap(new)

    def become_candidate(self, now_ms: int) -> None:
        deadline_ms = self._election_deadline(now_ms)
        if not self.is_voter:
            raise IllegalTransition(f"{self.role} cannot become Candidate: it is no voter")
        self._swap(Candidate(self.role.epoch + 1, self.voter_ids, self._me.id, deadline_ms, voted=self._me))

    def become_leader(self, epoch_start: int, now_ms: int) -> Leader:
        role = self.role
        if not isinstance(role, Candidate) or not role.is_won:
            raise IllegalTransition(f"{role} cannot become Leader: it was not elected")
        leader = Leader(
            role.epoch,
            self._me,
            self._endpoints,
            epoch_start,
            frozenset(role.granted),
            now_ms,
            self._settings.fetch_timeout_ms,
        )
        self._swap(leader)
        return leader

    def become_resigned(self, preferred: tuple[ReplicaKey, ...], now_ms: int) -> None:
        role = self.role
        deadline_ms = self._election_deadline(now_ms)
        self._swap(Resigned(role.epoch, self._me.id, self.voter_ids, preferred, deadline_ms, role.voted))

    def _unattached(self, epoch: int, deadline_ms: int, leader_id: int, voted: ReplicaKey | None) -> Unattached:
        if voted is not None:
            return Voted(epoch, deadline_ms, voted, leader_id)
        return Unattached(epoch, deadline_ms, leader_id)

    def _follower(
        self, epoch: int, leader_id: int, endpoints: tuple[Endpoint, ...], now_ms: int, voted: ReplicaKey | None
    ) -> Follower:
        """Up to a tenth of the fetch time-out is taken off, a different part for each: the leader answers waiting
        fetches all at once, so followers that all wait equally long would all stand in the same millisecond."""
        timeout_ms = self._settings.fetch_timeout_ms
        timeout_ms -= self._random.randrange(timeout_ms // 10 + 1)
        return Follower(epoch, leader_id, endpoints, now_ms, timeout_ms, voted)

    def _swap(self, new: Role) -> None:
        old = self.role
        if new.epoch < old.epoch:
            raise IllegalTransition(f"{old} cannot become {new}: the epoch would fall")
        allowed = _WITHIN_AN_EPOCH if new.epoch == old.epoch else _WITH_A_HIGHER_EPOCH
        if type(new) not in allowed[type(old)]:
            raise IllegalTransition(f"{old} cannot become {new}")
        self.role = new
        self._on_change(old, new)
