"""What every role answers."""

from __future__ import annotations

from typing import ClassVar

from controller.raft.types import NO_DEADLINE, NOBODY, ElectionState, Endpoint, ReplicaKey


class Role:
    name: ClassVar[str]

    def __init__(self, epoch: int, leader_id: int = NOBODY, voted: ReplicaKey | None = None) -> None:
        self.epoch = epoch
        self.leader_id = leader_id
        self.voted = voted
        self.leader_endpoints: tuple[Endpoint, ...] = ()

    @property
    def election(self) -> ElectionState:
        """What must be durable of this role."""
        return ElectionState(self.epoch, self.leader_id, self.voted)

    @property
    def election_deadline_ms(self) -> int:
        """When this role has waited long enough for a leader; a role that stands next inherits what is left."""
        return NO_DEADLINE

    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        raise NotImplementedError

    def __str__(self) -> str:
        return f"{self.name}(epoch={self.epoch}, leader={self.leader_id})"


def may_vote(role: Role, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
    """Without a leader: a pre-vote for any log that is not behind ours (it binds nobody), a vote once in an epoch.

    The log matters because what is committed is on a majority: a candidate that is behind us might lack it.
    """
    if is_pre_vote:
        return is_up_to_date
    if role.voted is not None:
        return role.voted == candidate
    return role.leader_id == NOBODY and is_up_to_date
