"""A disk under a simulated node: what was synced survives a crash, of the rest a prefix, for the log and for
``quorum-state`` independently.

``memory`` is what the running node sees (the page cache), ``durable`` what a restart would find at the least.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from controller.raft.types import (
    Append,
    Batch,
    ElectionState,
    KRaftVersionChange,
    LogState,
    OffsetEpoch,
    Persist,
    Truncate,
    VotersChange,
    VoterSet,
    WriteSnapshotPart,
)

T = TypeVar("T")

ZERO = OffsetEpoch(0, 0)


@dataclass
class SimLog:
    """Batches from ``start`` on, and what is known of the quorum before it."""

    start: OffsetEpoch = ZERO
    batches: list[Batch] = field(default_factory=list)
    snapshots: list[OffsetEpoch] = field(default_factory=list)
    voters_at_start: VoterSet | None = None
    kraft_version_at_start: int = 0

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset if self.batches else self.start.offset

    def copy(self) -> SimLog:
        return SimLog(self.start, self.batches[:], self.snapshots[:], self.voters_at_start, self.kraft_version_at_start)

    def index(self, offset: int) -> int:
        return bisect_left(self.batches, offset, key=_base_offset)

    def read(self, offset: int, count: int) -> tuple[Batch, ...]:
        """Whole batches, from the one that holds ``offset`` on; they are asked for at their beginnings."""
        index = self.index(offset)
        assert index == len(self.batches) or self.batches[index].base_offset == offset
        return tuple(self.batches[index : index + count])

    def between(self, start: int, end: int) -> list[Batch]:
        return self.batches[self.index(start) : self.index(end)]

    def apply(self, op: Persist) -> None:
        if isinstance(op, Append):
            for batch in op.batches:
                assert batch.base_offset == self.end_offset, (batch, self.end_offset)
                self.batches.append(batch)
        elif isinstance(op, Truncate):
            assert op.end_offset >= self.start.offset
            del self.batches[self.index(op.end_offset) :]
            assert self.end_offset <= op.end_offset

    def move_start(self, snapshot_id: OffsetEpoch) -> None:
        """Whole batches before it go; the voters they named are in the snapshot."""
        gone = bisect_right(self.batches, snapshot_id.offset, key=_end_offset)
        state = self.state()
        self.voters_at_start = _said_before(state.voter_sets, snapshot_id.offset)
        self.kraft_version_at_start = _said_before(state.kraft_versions, snapshot_id.offset) or 0
        del self.batches[:gone]
        self.start = snapshot_id
        self.snapshots = [known for known in self.snapshots if known.offset >= snapshot_id.offset]

    def install(self, snapshot_id: OffsetEpoch, voters: VoterSet | None, kraft_version: int) -> None:
        self.start = snapshot_id
        self.batches = []
        self.snapshots = [snapshot_id]
        self.voters_at_start, self.kraft_version_at_start = voters, kraft_version

    def state(self) -> LogState:
        """What the driver finds at start."""
        before = self.start.offset - 1
        epochs: list[tuple[int, int]] = []
        voter_sets = [] if self.voters_at_start is None else [(before, self.voters_at_start)]
        versions = [(before, self.kraft_version_at_start)] if self.kraft_version_at_start else []
        for batch in self.batches:
            if not epochs or epochs[-1][0] < batch.epoch:
                epochs.append((batch.epoch, batch.base_offset))
            for offset, record in enumerate(batch.control, batch.base_offset):
                if isinstance(record, VotersChange):
                    voter_sets.append((offset, record.voters))
                elif isinstance(record, KRaftVersionChange):
                    versions.append((offset, record.kraft_version))
        latest = self.snapshots[-1] if self.snapshots else None
        return LogState(self.start, self.end_offset, tuple(epochs), tuple(voter_sets), tuple(versions), latest)


def _base_offset(batch: Batch) -> int:
    return batch.base_offset


def _end_offset(batch: Batch) -> int:
    return batch.end_offset


def _said_before(said: tuple[tuple[int, T], ...], offset: int) -> T | None:
    values = [value for at, value in said if at < offset]
    return values[-1] if values else None


class SimDisk:
    def __init__(self) -> None:
        self.memory = SimLog()
        self.durable = SimLog()
        self.election = ElectionState()
        self.queue: list[Persist] = []
        self.written = 0
        """Operations ever queued; messages wait for such a number to be ..."""
        self.synced = 0
        """... at most this."""
        self.election_barrier = 0
        """The number up to which every message waits: an election state is among them."""
        self.is_broken = False

    def write(self, op: Persist) -> None:
        self.memory.apply(op)
        self.queue.append(op)
        self.written += 1
        if isinstance(op, ElectionState):
            self.election_barrier = self.written

    def sync(self, count: int) -> list[Persist]:
        """The first ``count`` operations of the queue reach the platter."""
        done, self.queue = self.queue[:count], self.queue[count:]
        for op in done:
            self._settle(op)
        self.synced += len(done)
        return done

    def _settle(self, op: Persist) -> None:
        if isinstance(op, ElectionState):
            self.election = op
        elif not isinstance(op, WriteSnapshotPart):
            self.durable.apply(op)

    @property
    def flushed(self) -> int:
        """Up to where the log the node sees is durable: what is to be cut does not count."""
        cuts = [op.end_offset for op in self.queue if isinstance(op, Truncate)]
        return min([self.durable.end_offset, *cuts])

    def crash(self, rng: Random) -> None:
        """Of what was not synced, the operating system had written some; the two files know nothing of each other."""
        of_log = [op for op in self.queue if not isinstance(op, (ElectionState, WriteSnapshotPart))]
        of_election = [op for op in self.queue if isinstance(op, ElectionState)]
        for ops in (of_log, of_election):
            for op in ops[: rng.randrange(len(ops) + 1)]:
                self._settle(op)
        self.queue = []
        self.written = self.synced = self.election_barrier = 0
        self.is_broken = False
        self.memory = self.durable.copy()
