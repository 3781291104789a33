"""Stands for election in a new epoch, with its own vote."""

from __future__ import annotations

from controller.raft.roles.nominee import Nominee
from controller.raft.types import ReplicaKey


class Candidate(Nominee):
    name = "Candidate"
    is_pre_vote = False

    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        """Its vote of this epoch is its own."""
        return is_pre_vote and is_up_to_date
