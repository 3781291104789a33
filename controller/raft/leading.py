"""Leading an epoch: its first records, proposals, the high watermark, and giving up."""

from __future__ import annotations

from controller.raft.core import Core
from controller.raft.roles.leader import Leader
from controller.raft.types import (
    Batch,
    BeginQuorumEpoch,
    ControlRecord,
    EndQuorumEpoch,
    KRaftVersionChange,
    LeaderChange,
    NotLeader,
    VotersChange,
)
from controller.raft.voters import with_voter


class Leading:
    def __init__(self, core: Core) -> None:
        self._core = core

    def become_leader(self) -> None:
        """The LeaderChange record comes first: once it is committed, everything before it is.

        The first leader of a dynamic quorum writes the voters it was formatted with into the log, where the others find
        them; any leader writes its own endpoints if they are not what the log says.
        """
        core = self._core
        leader = core.quorum.become_leader(core.log.end_offset, core.now_ms)
        voters = core.voters
        records: list[ControlRecord] = [
            LeaderChange(core.me.id, tuple(voter.key.id for voter in voters), tuple(sorted(leader.granting)))
        ]
        if core.history.kraft_version > 0:
            announced = with_voter(voters, core.own_voter) if core.endpoints else voters
            if core.history.voters_offset == -1:
                records += [KRaftVersionChange(core.history.kraft_version), VotersChange(announced)]
            elif announced != voters:
                records.append(VotersChange(announced))
        self.append_control(*records)

    def append_control(self, *records: ControlRecord) -> int:
        """Returns the last record's offset."""
        core = self._core
        base = core.log.end_offset
        core.append((Batch(base, base + len(records), core.epoch, records),))
        return base + len(records) - 1

    def propose(self, batch: Batch) -> None:
        core = self._core
        role = core.role
        if not isinstance(role, Leader) or role.must_resign:
            raise NotLeader(f"{role} cannot append: it does not lead")
        if batch.epoch != role.epoch:
            raise NotLeader(f"a batch for epoch {batch.epoch} in epoch {role.epoch}")
        if batch.base_offset != core.log.end_offset:
            raise NotLeader(f"a batch for offset {batch.base_offset}, but the log ends at {core.log.end_offset}")
        core.append((batch,))

    def on_flushed(self, end_offset: int) -> None:
        log = self._core.log
        log.flushed = max(log.flushed, min(end_offset, log.end_offset))

    def update_high_watermark(self, leader: Leader) -> None:
        """The highest offset on a majority of voters; never falls, because someone may already have acted on it."""
        core = self._core
        offset = leader.committed(core.voters, core.log.flushed)
        if offset >= 0:
            leader.is_ready = True
            core.raise_high_watermark(offset)

    def resign(self) -> None:
        core = self._core
        if isinstance(core.role, Leader):
            core.quorum.become_resigned(core.role.successors(core.voters), core.now_ms)

    # Telling the voters

    def poll_begin(self, leader: Leader) -> int:
        """BeginQuorumEpoch to every voter that has not fetched lately: it may not know who leads."""
        core = self._core
        if core.now_ms < leader.begin_deadline_ms:
            return leader.begin_deadline_ms
        deadline_ms = leader.begin_deadline_ms = core.now_ms + leader.begin_interval_ms
        for voter in core.remote_voters:
            progress = leader.progress.get(voter.key)
            if progress is not None and progress.last_fetch_ms > core.now_ms - leader.begin_interval_ms:
                continue
            if core.peers.when_ready(voter.key.id, core.now_ms) <= core.now_ms:
                core.send(voter.key.id, BeginQuorumEpoch(leader.epoch, core.me.id, voter.key, core.endpoints))
        return deadline_ms

    def poll_end(self, untold: set[int], request: EndQuorumEpoch) -> int | None:
        """EndQuorumEpoch to those who have not confirmed it. It does not wait for the disk, which may be the reason."""
        core = self._core
        deadlines = []
        for peer in sorted(untold):
            if core.peers.when_ready(peer, core.now_ms) <= core.now_ms:
                core.send(peer, request, after_persist=False)
            deadlines.append(core.peers.when_ready(peer, core.now_ms))
        return min(deadlines) if deadlines else None
