"""Would like to stand, and asks first whether it would be elected (KIP-996)."""

from __future__ import annotations

from controller.raft.roles.base import may_vote
from controller.raft.roles.nominee import Nominee
from controller.raft.types import ReplicaKey


class Prospective(Nominee):
    """The epoch stays as it is: a node cut off from the others must not depose their leader when it comes back."""

    name = "Prospective"
    is_pre_vote = True

    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        return may_vote(self, candidate, is_up_to_date=is_up_to_date, is_pre_vote=is_pre_vote)
