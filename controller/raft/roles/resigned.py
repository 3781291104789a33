"""Led this epoch and gave it up, by intent, by doubt or by a restart."""

from __future__ import annotations

from collections.abc import Iterable

from controller.raft.roles.base import Role
from controller.raft.types import ReplicaKey


class Resigned(Role):
    """Stays the epoch's leader for the record, so that it neither votes nor follows in it, but serves nothing."""

    name = "Resigned"

    def __init__(
        self,
        epoch: int,
        me: int,
        voter_ids: Iterable[int],
        preferred: tuple[ReplicaKey, ...],
        deadline_ms: int,
        voted: ReplicaKey | None = None,
    ) -> None:
        super().__init__(epoch, me, voted)
        self.preferred = preferred
        self.untold = set(voter_ids) - {me}
        self._deadline_ms = deadline_ms

    @property
    def election_deadline_ms(self) -> int:
        return self._deadline_ms

    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        return is_pre_vote and is_up_to_date
