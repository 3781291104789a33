"""No leader known in this epoch."""

from __future__ import annotations

from controller.raft.roles.base import Role, may_vote
from controller.raft.types import NOBODY, ReplicaKey


class Unattached(Role):
    """Waits for a leader to show up, and looks for one. ``leader_id`` may be known where its address is not."""

    name = "Unattached"

    def __init__(self, epoch: int, deadline_ms: int, leader_id: int = NOBODY, voted: ReplicaKey | None = None) -> None:
        super().__init__(epoch, leader_id, voted)
        self._deadline_ms = deadline_ms

    @property
    def election_deadline_ms(self) -> int:
        return self._deadline_ms

    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        return may_vote(self, candidate, is_up_to_date=is_up_to_date, is_pre_vote=is_pre_vote)


class Voted(Unattached):
    """Unattached, and this epoch's vote is given away."""

    name = "Voted"

    def __init__(self, epoch: int, deadline_ms: int, voted: ReplicaKey, leader_id: int = NOBODY) -> None:
        super().__init__(epoch, deadline_ms, leader_id, voted)
