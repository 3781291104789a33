"""A replica on its way from one log directory to another (KIP-113): what is to be done next.

Pure. The current log goes on being written, by the leader or the follower that it is. Its copy, the future log, follows
it batch by batch. Once they are level the controller is told (KIP-858), and once it has recorded that, they change
places in the moment in which they are level again:

    COPYING → ASKING → ASSIGNED → gone

From ASKING on the metadata may name the new directory, so whoever gives up the move has to take that back.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

PATIENT_FLUSHES: Final = 5
"""How often the future log is synced off the loop, before it is done on the loop: with flush.messages=1 and a busy
producer the current log is always synced a little further, and a sync of what is left takes a moment."""


class MovePhase(Enum):
    COPYING = auto()
    ASKING = auto()
    """The controller was told that the replica is in the new directory; it has not answered."""
    ASSIGNED = auto()
    """It has recorded that: the logs change places when they are level."""
    FAILED = auto()
    """What is in the current log cannot be copied. Nothing happens until someone cancels the move."""


class LogEnds(NamedTuple):
    """A log, as far as a move is concerned with it."""

    log_start_offset: int
    log_end_offset: int
    recovery_point: int


class Restart(NamedTuple):
    """Drop everything in the future log and go on at `start_offset`: the current log begins later by now."""

    start_offset: int


class Cut(NamedTuple):
    """Cut off `to_offset` and all above, which the current log does not have."""

    to_offset: int


class Copy(NamedTuple):
    """Copy the next records, from `from_offset` on."""

    from_offset: int


class Ask(NamedTuple):
    """Tell the controller where the replica is going to be."""


class Flush(NamedTuple):
    """Make the future log durable; `now` means before anything else is appended to the current one."""

    now: bool


class ChangePlaces(NamedTuple):
    """Now, before anything else happens to either log."""


MoveStep = Restart | Cut | Copy | Ask | Flush | ChangePlaces | None


class ReplicaMove:
    """`is_assigned` says that the metadata names the new directory already: a restart came between."""

    __slots__ = ("_flushes", "phase")

    def __init__(self, *, is_assigned: bool = False) -> None:
        self.phase = MovePhase.ASSIGNED if is_assigned else MovePhase.COPYING
        self._flushes = 0

    @property
    def may_be_assigned(self) -> bool:
        """Whether the metadata names the new directory, or may do so soon."""
        return self.phase in (MovePhase.ASKING, MovePhase.ASSIGNED)

    def next_step(self, current: LogEnds, future: LogEnds) -> MoveStep:
        """None: nothing, until the controller has answered, or for good."""
        if self.phase in (MovePhase.ASKING, MovePhase.FAILED):
            return None
        if future.log_end_offset < current.log_start_offset:
            return Restart(current.log_start_offset)
        if future.log_end_offset > current.log_end_offset:
            return Cut(current.log_end_offset)
        if future.log_end_offset < current.log_end_offset:
            return Copy(future.log_end_offset)
        if self.phase is MovePhase.COPYING:
            self.phase = MovePhase.ASKING
            return Ask()
        if future.recovery_point < current.recovery_point:  # what was durable has to stay so
            self._flushes += 1
            return Flush(now=self._flushes > PATIENT_FLUSHES)
        return ChangePlaces()

    def on_assigned(self) -> None:
        if self.phase is MovePhase.ASKING:
            self.phase = MovePhase.ASSIGNED

    def fail(self) -> None:
        self.phase = MovePhase.FAILED


class LogHistory(NamedTuple):
    """The leader epochs of a log, oldest first, and where it ends."""

    epochs: Sequence[tuple[int, int]]
    log_end_offset: int

    def end_of(self, epoch: int) -> int:
        return min((start for other, start in self.epochs if other > epoch), default=self.log_end_offset)

    @property
    def latest_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1


def common_end(current: LogHistory, future: LogHistory) -> int | None:
    """Up to where two logs of one partition are the same, None if they have no epoch in common.

    Records of an epoch were written by its one leader. So logs that both have an epoch agree up to where the first of
    them ends it, and with the largest such epoch that is as far as they agree.
    """
    shared = {epoch for epoch, _ in current.epochs} & {epoch for epoch, _ in future.epochs}
    if not shared:
        return None
    largest = max(shared)
    return min(current.end_of(largest), future.end_of(largest))


def is_level(current: LogHistory, future: LogHistory) -> bool:
    """Whether the future log has all that the current one has, as voters compare their logs."""
    return (future.latest_epoch, future.log_end_offset) >= (current.latest_epoch, current.log_end_offset)
