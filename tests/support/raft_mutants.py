"""The core, broken on purpose. A simulation that does not notice is no simulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.raft_faults import Kind
from support.raft_sim import World

from controller.raft.arithmetic import UNKNOWN_OFFSET, committed_offset, majority
from controller.raft.log_shape import VALID, LogShape
from controller.raft.quorum import Quorum
from controller.raft.roles.leader import Leader
from controller.raft.roles.prospective import Prospective
from controller.raft.roles.unattached import Unattached, Voted
from controller.raft.types import OffsetEpoch, ReplicaKey, VoterSet
from controller.raft.voter_changes import VoterChanges
from controller.raft.voters import find_replica
from controller.raft.voting import Voting

Mutant = Callable[[pytest.MonkeyPatch], Callable[[World], None] | None]


def votes_twice(patch: pytest.MonkeyPatch) -> None:
    """Grants a vote to whoever asks, whomever it was given to in this epoch."""

    def can_grant(self: Any, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        return is_up_to_date

    def grant(self: Quorum, candidate: ReplicaKey, now_ms: int) -> None:
        role = self.role
        if isinstance(role, Unattached):
            self.role = Voted(role.epoch, role.election_deadline_ms, candidate, role.leader_id)
        role.voted = candidate

    patch.setattr(Unattached, "can_grant_vote", can_grant)
    patch.setattr(Prospective, "can_grant_vote", can_grant)
    patch.setattr(Quorum, "grant_vote", grant)


def commits_without_own_epoch(patch: pytest.MonkeyPatch) -> None:
    """Takes a record of an earlier epoch for committed because it is on a majority (figure 8 of the Raft paper)."""
    honest = Leader.committed

    def committed(self: Leader, voters: VoterSet, own_durable_end: int) -> int:
        epoch_start, self.epoch_start = self.epoch_start, UNKNOWN_OFFSET
        try:
            return honest(self, voters, own_durable_end)
        finally:
            self.epoch_start = epoch_start

    patch.setattr(Leader, "committed", committed)


def skips_the_sync(patch: pytest.MonkeyPatch) -> Callable[[World], None]:
    """Answers and acknowledges before anything is durable."""

    def break_world(world: World) -> None:
        world.skips_sync = True

    return break_world


def forgets_its_vote(patch: pytest.MonkeyPatch) -> Callable[[World], None]:
    """After a restart it knows the epoch, but not whom it voted for or that it led."""

    def break_world(world: World) -> None:
        world.forgets_votes = True

    return break_world


def ignores_the_log_in_votes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Voting, "is_up_to_date", lambda self, request: True)


def truncates_too_much(patch: pytest.MonkeyPatch) -> None:
    """Cuts back to the beginning when it diverges, and does not look at the high watermark."""

    def truncation_point(self: LogShape, diverging: OffsetEpoch) -> int:
        self.high_watermark = self.start.offset
        return self.start.offset

    patch.setattr(LogShape, "truncation_point", truncation_point)


def does_not_validate_fetches(patch: pytest.MonkeyPatch) -> None:
    """Appends whatever the leader has from that offset on, whatever came before it."""
    patch.setattr(LogShape, "validate", lambda self, offset, epoch: VALID)


def counts_observers(patch: pytest.MonkeyPatch) -> None:
    """As many replicas as a majority has voters, but any replicas."""

    def committed(self: Leader, voters: VoterSet, own_durable_end: int) -> int:
        ends = sorted([own_durable_end, *(progress.end_offset for progress in self.progress.values())], reverse=True)
        needed = majority(len(voters))
        offset = ends[needed - 1] if len(ends) >= needed else UNKNOWN_OFFSET
        return offset if offset > self.epoch_start else UNKNOWN_OFFSET

    patch.setattr(Leader, "committed", committed)


def uses_the_old_voters(patch: pytest.MonkeyPatch) -> None:
    """Commits by the voters of the time it was elected, whatever the log has named since."""

    def committed(self: Leader, voters: VoterSet, own_durable_end: int) -> int:
        voters = self.__dict__.setdefault("first_voters", voters)
        acked = {key: progress.end_offset for key, progress in self.progress.items()}
        own = find_replica(voters, self.me)
        if own is not None:
            acked[own.key] = own_durable_end
        offset = committed_offset(acked, (voter.key for voter in voters))
        return offset if offset > self.epoch_start else UNKNOWN_OFFSET

    patch.setattr(Leader, "committed", committed)


def changes_voters_too_early(patch: pytest.MonkeyPatch) -> None:
    """Starts a change of the voters while an earlier one, or all of its epoch, is uncommitted."""

    def may_change(self: VoterChanges, doing: str) -> Any:
        leader = self._core.role
        return (
            leader if isinstance(leader, Leader) and self._core.history.kraft_version else None
        ), self._core.answer()

    patch.setattr(VoterChanges, "_may_change", may_change)


MUTANTS: dict[Mutant, Kind] = {
    votes_twice: Kind.ELECTIONS,
    commits_without_own_epoch: Kind.ELECTIONS,
    skips_the_sync: Kind.MIXED,
    forgets_its_vote: Kind.ELECTIONS,
    ignores_the_log_in_votes: Kind.MIXED,
    truncates_too_much: Kind.MIXED,
    does_not_validate_fetches: Kind.MIXED,
    counts_observers: Kind.MIXED,
    uses_the_old_voters: Kind.VOTERS,
    changes_voters_too_early: Kind.VOTERS,
}
"""With the kind of run in which each does its harm."""
