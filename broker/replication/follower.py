"""The follower's side of replication, for one partition in one leader epoch.

Pure. The shell asks what to fetch, passes on what the leader answered, and carries out the one step that comes back:
append, truncate, ask the leader for its offsets, wait, or give up until the metadata says more.

Truncation goes by leader epochs (KIP-101, KIP-595): every fetch says in which epoch the follower's last record was
written, and the leader answers with the end of that epoch where the two logs part. So the follower never cuts what the
leader has, and never keeps what it has not.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final, NamedTuple

from protocol.errors import ErrorCode

NO_EPOCH: Final = -1
UNDEFINED: Final = -1
FIRST_BACKOFF_MS: Final = 20  # some turns of a loop that takes in a change of the metadata; doubled from then on


class FollowerPhase(Enum):
    TRUNCATING = auto()
    """Before the first fetch: a log without any epoch has nothing to compare; what is not committed has to go."""
    FETCHING = auto()
    ASKING_OFFSETS = auto()
    """The leader does not have the offset that was asked for: where does its log begin and end?"""
    FAILED = auto()
    """Fenced, or our own disk failed: nothing happens until the metadata changes."""


class FetchPosition(NamedTuple):
    """What a fetch asks for. `last_fetched_epoch` is that of our last record, -1 for an empty log."""

    offset: int
    last_fetched_epoch: int
    log_start_offset: int
    leader_epoch: int


class Truncate(NamedTuple):
    """Cut off `to_offset` and all above."""

    to_offset: int


class TruncateFully(NamedTuple):
    """Drop everything and go on at `start_offset`, where the leader's log begins."""

    start_offset: int


class Append(NamedTuple):
    """Append the records, then move high watermark and log start to the leader's, as far as our log reaches."""

    high_watermark: int
    log_start_offset: int


class AskOffsets(NamedTuple):
    """Ask the leader for its log start and log end (ListOffsets)."""


class Delay(NamedTuple):
    """Nothing to do before `until_ms`. Only a reason worth a log line is given."""

    until_ms: int
    reason: str


class GiveUp(NamedTuple):
    reason: str


Step = Truncate | TruncateFully | Append | AskOffsets | Delay | GiveUp | None


class LogPosition(NamedTuple):
    """Our log, as far as a decision needs it. `end_offset_for_epoch` gives the largest epoch at or below the one asked
    for and where it ended, (-1, -1) if there is none."""

    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    latest_epoch: int
    end_offset_for_epoch: Callable[[int], tuple[int, int]]


# The leader is on its way, or we know more than it does: the same request may succeed a moment later.
_TRANSIENT: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)


class FollowerState:
    """Created when the partition begins to follow a leader in an epoch, dropped when either changes."""

    __slots__ = ("_backoff_ms", "_delayed_until_ms", "_failures", "is_level", "leader", "leader_epoch", "phase")

    def __init__(self, leader: int, leader_epoch: int, backoff_ms: int) -> None:
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.phase = FollowerPhase.TRUNCATING
        self.is_level = False
        """All that the leader knows to be committed is here, as far as its last answer tells: exempt from throttles."""
        self._backoff_ms = backoff_ms
        self._failures = 0
        self._delayed_until_ms = 0

    def start(self, log: LogPosition) -> Step:
        """The first step. With a known epoch the leader's first answer says where to truncate; without one, only what
        is committed can be trusted."""
        self.phase = FollowerPhase.FETCHING
        if log.latest_epoch == NO_EPOCH and log.log_end_offset > log.high_watermark:
            return Truncate(log.high_watermark)
        return None

    def wants_fetch(self, now_ms: int) -> bool:
        return self.phase is FollowerPhase.FETCHING and now_ms >= self._delayed_until_ms

    def wants_offsets(self, now_ms: int) -> bool:
        return self.phase is FollowerPhase.ASKING_OFFSETS and now_ms >= self._delayed_until_ms

    @property
    def delayed_until_ms(self) -> int:
        return self._delayed_until_ms

    def position(self, log: LogPosition) -> FetchPosition:
        return FetchPosition(log.log_end_offset, log.latest_epoch, log.log_start_offset, self.leader_epoch)

    # --- answers

    def on_data(self, asked_offset: int, log: LogPosition, high_watermark: int, log_start_offset: int) -> Step:
        """Records, perhaps none. An answer to a position that is no longer ours (the log was cut since) is void."""
        if self.phase is not FollowerPhase.FETCHING or asked_offset != log.log_end_offset:
            return None
        self._failures = 0
        return Append(high_watermark, log_start_offset)

    def on_appended(self, log_end_offset: int, high_watermark: int) -> None:
        """The step was carried out; `high_watermark` is the leader's."""
        self.is_level = log_end_offset >= high_watermark

    def on_diverging(self, asked_offset: int, log: LogPosition, epoch: int, end_offset: int) -> Step:
        """Our log and the leader's part at the end of `epoch`, at the latest.

        If we do not know that epoch either, we cut to the end of the largest one below it that we know, and ask again.
        """
        if self.phase is not FollowerPhase.FETCHING or asked_offset != log.log_end_offset:
            return None
        if end_offset == UNDEFINED:
            return Truncate(min(log.high_watermark, log.log_end_offset))
        if epoch == NO_EPOCH:
            return Truncate(min(end_offset, log.log_end_offset))
        own_epoch, own_end = log.end_offset_for_epoch(epoch)
        if own_end == UNDEFINED:
            return Truncate(min(end_offset, log.log_end_offset))
        if own_epoch != epoch:
            return Truncate(min(own_end, log.log_end_offset))
        return Truncate(min(own_end, end_offset, log.log_end_offset))

    def on_error(self, now_ms: int, error: ErrorCode) -> Step:
        if self.phase is FollowerPhase.FAILED:
            return None
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.phase = FollowerPhase.ASKING_OFFSETS
            return AskOffsets()
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            self.phase = FollowerPhase.FAILED
            return GiveUp("the leader is in a later epoch; the metadata will say which")
        return self.delay(now_ms, "" if error in _TRANSIENT else f"the leader answered {error.name}")

    def on_leader_offsets(self, log: LogPosition, leader_start_offset: int, leader_end_offset: int) -> Step:
        """Behind the leader's beginning: nothing of ours is left in its log. Ahead of its end: cut to there."""
        if self.phase is not FollowerPhase.ASKING_OFFSETS:
            return None
        self.phase = FollowerPhase.FETCHING
        if leader_end_offset < log.log_end_offset:
            return Truncate(leader_end_offset)
        if leader_start_offset > log.log_end_offset:
            return TruncateFully(leader_start_offset)
        return None

    def delay(self, now_ms: int, reason: str) -> Delay:
        """Short at first: after an election a follower often hears of its leader before that one does itself, and
        nothing is committed until it has asked again. `backoff_ms` (replica.fetch.backoff.ms) is where it ends."""
        self._delayed_until_ms = now_ms + min(self._backoff_ms, FIRST_BACKOFF_MS << min(self._failures, 16))
        self._failures += 1
        return Delay(self._delayed_until_ms, reason)

    def fail(self) -> None:
        """Our own log refused: the partition stays behind until the metadata moves it."""
        self.phase = FollowerPhase.FAILED
