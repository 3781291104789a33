"""What prospective and candidate share: an election under way."""

from __future__ import annotations

from collections.abc import Iterable

from controller.raft.arithmetic import majority
from controller.raft.roles.base import Role
from controller.raft.types import NOBODY, ReplicaKey


class Nominee(Role):
    """Counts votes of the voters it was created with, its own included; nobody else's counts."""

    is_pre_vote: bool

    def __init__(
        self,
        epoch: int,
        voter_ids: Iterable[int],
        me: int,
        deadline_ms: int,
        leader_id: int = NOBODY,
        voted: ReplicaKey | None = None,
    ) -> None:
        super().__init__(epoch, leader_id, voted)
        self.voter_ids = frozenset(voter_ids)
        self.granted: set[int] = {me} & self.voter_ids
        self.rejected: set[int] = set()
        self._deadline_ms = deadline_ms

    @property
    def election_deadline_ms(self) -> int:
        return self._deadline_ms

    @property
    def is_won(self) -> bool:
        return len(self.granted) >= majority(len(self.voter_ids))

    @property
    def is_lost(self) -> bool:
        return len(self.voter_ids) - len(self.rejected) < majority(len(self.voter_ids))

    @property
    def unrecorded(self) -> list[int]:
        return sorted(self.voter_ids - self.granted - self.rejected)

    def record(self, voter_id: int, *, granted: bool) -> None:
        """A voter's first word counts; it does not take a vote back within an election."""
        if voter_id in self.voter_ids and voter_id not in self.granted and voter_id not in self.rejected:
            (self.granted if granted else self.rejected).add(voter_id)
