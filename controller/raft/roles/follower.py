"""Follows a leader: a voter that times out without it, or an observer that goes looking for it."""

from __future__ import annotations

from controller.raft.roles.base import Role
from controller.raft.types import Endpoint, OffsetEpoch, ReplicaKey


class Download:
    """A snapshot on its way. While it lasts the log is not fetched."""

    __slots__ = ("position", "snapshot_id")

    def __init__(self, snapshot_id: OffsetEpoch) -> None:
        self.snapshot_id = snapshot_id
        self.position = 0


class Follower(Role):
    name = "Follower"

    def __init__(
        self,
        epoch: int,
        leader_id: int,
        leader_endpoints: tuple[Endpoint, ...],
        now_ms: int,
        fetch_timeout_ms: int,
        voted: ReplicaKey | None = None,
    ) -> None:
        super().__init__(epoch, leader_id, voted)
        self.leader_endpoints = leader_endpoints
        self.has_fetched = False
        """From this leader, since following it: the leader is there, so nobody should stand."""
        self.download: Download | None = None
        self.has_updated_leader = False
        """Told it what this voter supports; a leader of a static quorum does not find that in the log."""
        self._fetch_timeout_ms = fetch_timeout_ms
        self._deadline_ms = now_ms + fetch_timeout_ms
        # An observer that wants to join, or a voter that moved, first follows for a while, as in Kafka.
        self.voter_change_ms = now_ms + fetch_timeout_ms

    @property
    def election_deadline_ms(self) -> int:
        return self._deadline_ms

    def heard_from_leader(self, now_ms: int) -> None:
        self._deadline_ms = now_ms + self._fetch_timeout_ms

    def expect_election(self, at_ms: int) -> None:
        """The leader resigned: stand at this time unless someone else does before, who then gets the pre-vote."""
        self.has_fetched = False
        self._deadline_ms = at_ms

    def leader_is_gone(self, at_ms: int) -> None:
        """Its process is not there: no need to wait for a time-out, nor to keep others from standing."""
        self.has_fetched = False
        self._deadline_ms = min(self._deadline_ms, at_ms)

    def put_off_voter_change(self, now_ms: int) -> None:
        self.voter_change_ms = now_ms + self._fetch_timeout_ms

    def can_grant_vote(self, candidate: ReplicaKey, *, is_up_to_date: bool, is_pre_vote: bool) -> bool:
        """This epoch has its leader. A pre-vote is only granted by who has not heard of it yet."""
        return is_pre_vote and is_up_to_date and not self.has_fetched
