"""Voter sets as values, and the history of those the log has named.

A voter set counts from the moment its record is appended, committed or not, and stops counting when the record is
truncated (KIP-853). Static quorums name none in the log; the configured set counts then.
"""

from __future__ import annotations

from controller.raft.types import (
    Batch,
    KRaftVersionChange,
    LogState,
    OffsetEpoch,
    ReplicaKey,
    Voter,
    VotersChange,
    VoterSet,
)
from protocol.uuids import Uuid


def find_voter(voters: VoterSet, voter_id: int) -> Voter | None:
    for voter in voters:
        if voter.key.id == voter_id:
            return voter
    return None


def find_replica(voters: VoterSet, key: ReplicaKey) -> Voter | None:
    """The voter that this replica is. A static voter has no directory id and is known by its id alone."""
    voter = find_voter(voters, key.id)
    if voter is not None and voter.key.directory_id in (Uuid.ZERO, key.directory_id):
        return voter
    return None


def with_voter(voters: VoterSet, added: Voter) -> VoterSet:
    """Added, or put in the place of the one with its id."""
    others = [voter for voter in voters if voter.key.id != added.key.id]
    return tuple(sorted([*others, added], key=lambda voter: voter.key.id))


def without_voter(voters: VoterSet, key: ReplicaKey) -> VoterSet:
    return tuple(voter for voter in voters if voter.key != key)


class VoterHistory:
    """Voter sets and kraft versions by the offset of the record that said so."""

    def __init__(self, log: LogState, static_voters: VoterSet) -> None:
        self._static = static_voters
        self._voter_sets = list(log.voter_sets)
        self._versions = list(log.kraft_versions)
        self.voters: VoterSet = ()
        self.kraft_version = 0
        self._refresh()

    def _refresh(self) -> None:
        self.voters = self._voter_sets[-1][1] if self._voter_sets else self._static
        self.kraft_version = self._versions[-1][1] if self._versions else 0

    @property
    def voters_offset(self) -> int | None:
        """Of the record that names the present voters; -1 of bootstrap.checkpoint, None of a static quorum."""
        return self._voter_sets[-1][0] if self._voter_sets else None

    def voters_at(self, end_offset: int) -> VoterSet | None:
        said = [voters for offset, voters in self._voter_sets if offset < end_offset]
        return said[-1] if said else None

    def kraft_version_at(self, end_offset: int) -> int:
        said = [version for offset, version in self._versions if offset < end_offset]
        return said[-1] if said else 0

    def on_append(self, batch: Batch) -> bool:
        """Whether the batch names voters."""
        names_voters = False
        for offset, record in enumerate(batch.control, batch.base_offset):
            if isinstance(record, VotersChange):
                self._voter_sets.append((offset, record.voters))
                names_voters = True
            elif isinstance(record, KRaftVersionChange):
                self._versions.append((offset, record.kraft_version))
        if batch.control:
            self._refresh()
        return names_voters

    def truncate(self, end_offset: int) -> None:
        self._voter_sets = [said for said in self._voter_sets if said[0] < end_offset]
        self._versions = [said for said in self._versions if said[0] < end_offset]
        self._refresh()

    def forget_before(self, start_offset: int) -> None:
        """What was superseded before the log's start is in no log and no snapshot any more."""
        while len(self._voter_sets) > 1 and self._voter_sets[1][0] < start_offset:
            del self._voter_sets[0]
        while len(self._versions) > 1 and self._versions[1][0] < start_offset:
            del self._versions[0]

    def install(self, snapshot_id: OffsetEpoch, voters: VoterSet | None, kraft_version: int) -> None:
        offset = snapshot_id.offset - 1
        self._voter_sets = [] if voters is None else [(offset, voters)]
        self._versions = [(offset, kraft_version)] if kraft_version else []
        self._refresh()
