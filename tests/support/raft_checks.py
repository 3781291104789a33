"""What must hold after every event, seen from outside: by what nodes say, keep and lead."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Protocol

from support.raft_disk import SimLog

from controller.raft.node import RaftNode
from controller.raft.types import Batch, OffsetEpoch, ReplicaKey, VoterSet


class Violation(AssertionError):
    """Consensus is broken."""


class Checked(Protocol):
    """What the checks look at in a simulated node."""

    id: int
    key: ReplicaKey
    incarnation: int
    node: Any
    log: SimLog


class Checks:
    def __init__(self) -> None:
        self.leaders: dict[int, int] = {}
        """Epoch to node."""
        self._acting: dict[int, int] = {}
        """Epoch to the incarnation of its leader that said or committed something: another may not lead it again."""
        self.committed: list[Batch] = []
        """The one history. Grows at its end, never changes."""
        self.acknowledged: set[object] = set()
        self.snapshots: dict[OffsetEpoch, tuple[VoterSet | None, int]] = {}
        self._seen: dict[int, tuple[int, int, int]] = {}
        self._spoken: dict[ReplicaKey, int] = {}
        self._ready: set[int] = set()
        self._ends: list[int] = []
        self._epochs: list[int] = []
        """In which each was committed, or at the latest."""

    @property
    def committed_end(self) -> int:
        return self._ends[-1] if self._ends else 0

    def after_step(self, sim: Checked) -> None:
        node: RaftNode = sim.node
        epoch, high_watermark = node.epoch, node.high_watermark
        incarnation, last_epoch, last_high_watermark = self._seen.get(sim.id, (-1, 0, 0))
        if incarnation != sim.incarnation:
            last_epoch, last_high_watermark = self._spoken.get(sim.key, 0), sim.log.start.offset
            self._compare(sim, sim.log.start.offset, high_watermark)
        if epoch < last_epoch:
            raise Violation(f"node {sim.id} fell from epoch {last_epoch} to {epoch}")
        if high_watermark < last_high_watermark:
            raise Violation(f"high watermark of node {sim.id} fell from {last_high_watermark} to {high_watermark}")
        if node.log_end_offset != sim.log.end_offset:
            raise Violation(f"node {sim.id} takes {node.log_end_offset} for the end of {sim.log.end_offset}")
        if high_watermark > last_high_watermark:
            self._compare(sim, max(last_high_watermark, sim.log.start.offset), high_watermark)
        if node.is_leader:
            self._check_leader(sim, epoch)
            if high_watermark > last_high_watermark:
                self.on_acting(sim, epoch)
        self._seen[sim.id] = (sim.incarnation, epoch, high_watermark)

    def _check_leader(self, sim: Checked, epoch: int) -> None:
        known = self.leaders.setdefault(epoch, sim.id)
        if known != sim.id:
            raise Violation(f"two leaders in epoch {epoch}: node {known} and node {sim.id}")
        if self._acting.get(epoch, sim.incarnation) != sim.incarnation:
            raise Violation(f"node {sim.id} leads epoch {epoch} again after a crash")
        if epoch not in self._ready and sim.node.leadership.is_ready:
            self._ready.add(epoch)
            if sim.node.high_watermark < self._committed_before(epoch):
                raise Violation(f"clients of node {sim.id} would see the high watermark fall from epoch to epoch")

    def on_acting(self, sim: Checked, epoch: int) -> None:
        self._acting[epoch] = sim.incarnation

    def on_elected(self, sim: Checked) -> None:
        """A leader holds everything that was committed in earlier epochs: followers take its word for it. One that was
        elected long ago and only hears of it now need not know what later leaders did."""
        self._compare(sim, sim.log.start.offset, self._committed_before(sim.node.epoch))

    def _committed_before(self, epoch: int) -> int:
        earlier = [end for end, committed in zip(self._ends, self._epochs, strict=True) if committed < epoch]
        return earlier[-1] if earlier else 0

    def _compare(self, sim: Checked, start: int, end: int) -> None:
        """The node's log between two offsets is history, or becomes it."""
        log = sim.log
        if end > log.end_offset:
            raise Violation(f"node {sim.id} lacks what is committed: {log.end_offset} of {end}")
        for batch in log.between(start, end):
            if batch.base_offset >= self.committed_end:
                if batch.base_offset != self.committed_end:
                    raise Violation(f"node {sim.id} commits {batch} where history ends at {self.committed_end}")
                self.committed.append(batch)
                self._ends.append(batch.end_offset)
                self._epochs.append(sim.node.epoch)
            elif self._at(batch.base_offset) != batch:
                raise Violation(f"node {sim.id} has {batch} where {self._at(batch.base_offset)} is committed")

    def _at(self, offset: int) -> Batch | None:
        index = bisect_right(self._ends, offset)
        return self.committed[index] if index < len(self.committed) else None

    def on_removed(self, sim: Checked, removed: list[Batch]) -> None:
        for batch in removed:
            if self._at(batch.base_offset) == batch:
                raise Violation(f"node {sim.id} cuts {batch}, which is committed")

    def on_spoken(self, key: ReplicaKey, epoch: int) -> None:
        """An epoch that others have heard of must not be forgotten, except with the disk."""
        self._spoken[key] = max(self._spoken.get(key, 0), epoch)

    def on_snapshot(self, snapshot_id: OffsetEpoch, voters: VoterSet | None, kraft_version: int) -> None:
        """A snapshot is history up to its end: whoever takes it, it says the same."""
        index = bisect_right(self._ends, snapshot_id.offset - 1)
        if index >= len(self.committed) or self.committed[index].epoch != snapshot_id.epoch:
            raise Violation(f"snapshot {snapshot_id} does not end where history has it")
        if self.snapshots.setdefault(snapshot_id, (voters, kraft_version)) != (voters, kraft_version):
            raise Violation(f"two snapshots {snapshot_id} disagree on the voters")

    def at_the_end(self) -> None:
        held = {batch.payload for batch in self.committed if batch.payload is not None}
        if not self.acknowledged <= held:
            raise Violation(f"acknowledged and lost: {sorted(map(str, self.acknowledged - held))}")
