"""The vocabulary between the core and its driver: who takes part, what arrives, what is to be done.

``effects = node.step(now_ms, input)`` is the only way in. The driver owes the core this:

1. Effects are performed in the order in which the steps returned them.
2. Everything in ``persist`` of a step is durable before a message of the same or a later step with ``after_persist``
   leaves. That is what a vote or an acknowledged offset rests on.
   An ``ElectionState`` is durable before *any* message of the same or a later step leaves, and before batches of the
   same or a later step are reported ``Flushed``; ``after_persist`` being False only frees a message from waiting for
   the log. A leader that forgot that it led could lead the same epoch twice, with another log.
3. Once appended batches are durable (a leader's or a follower's), it says so with ``Flushed``; a leader counts itself
   towards the majority only then. A sync that was under way while the log was cut does not count for what came after.
4. It calls ``step(now_ms, Tick())`` at ``Effects.deadline_ms`` at the latest, and once at start.
5. A request that cannot be answered by its peer (no connection, a time-out) comes back as ``Failed``. The
   ``request`` of ``Answered`` and ``Failed`` is the very object of the ``Send``; an equal one is not taken for it.
   A peer that does not know a pre-vote (Vote below version 2) comes back as ``Answered`` with ``UNSUPPORTED_VERSION``.
6. Where a peer is to be found: ``node.endpoints_of(peer)``; empty for bootstrap servers (ids below -1), whose
   addresses the driver has: ``bootstrap_index(peer)`` is the position in its list.
7. Records of batches lie densely: control record ``i`` of a batch has the offset ``base_offset + i``.
8. A ``RaftError`` other than ``NotLeader`` out of ``step`` ends this node's part in the quorum, as a failed disk does:
   what is committed contradicts itself, or the core is broken. Nobody may go on with it; one line in the log.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from protocol.errors import ErrorCode
from protocol.uuids import Uuid

NOBODY: Final = -1
NO_DEADLINE: Final = 1 << 62
UNSAID_HIGH_WATERMARK: Final = (1 << 63) - 1
"""Fetch versions before KIP-1166 do not tell the follower's high watermark; the wire's default says so."""


class RaftError(Exception):
    """The core was misused, or what it was told contradicts what is committed. Never a peer's ordinary refusal."""


class NotLeader(RaftError):
    """A proposal to a node that does not lead, in another epoch, or not at the end of the log. Nothing happened."""


def bootstrap_peer(index: int) -> int:
    """Bootstrap servers have no node id yet; as in Kafka they count down from -2."""
    return -2 - index


def bootstrap_index(peer: int) -> int:
    return -2 - peer


class ReplicaKey(NamedTuple):
    """A node with its metadata directory: a node whose disk was replaced is another replica (KIP-853)."""

    id: int
    directory_id: Uuid = Uuid.ZERO


class Endpoint(NamedTuple):
    listener: str
    host: str
    port: int


class Voter(NamedTuple):
    key: ReplicaKey
    endpoints: tuple[Endpoint, ...]
    min_kraft_version: int = 0
    max_kraft_version: int = 1


VoterSet = tuple[Voter, ...]
"""Ordered by id, each id once."""


class OffsetEpoch(NamedTuple):
    """An end offset (exclusive) and the epoch of the last record before it."""

    offset: int
    epoch: int


# What the core remembers across restarts.


class ElectionState(NamedTuple):
    """``quorum-state``. At most one of leader and vote matters in an epoch; a vote is never taken back."""

    epoch: int = 0
    leader_id: int = NOBODY
    voted: ReplicaKey | None = None


class LogState(NamedTuple):
    """The shape of the log at start: ``epochs`` holds (epoch, first offset) in order.

    ``start`` is where the log begins, with the epoch of the snapshot that ends there; ``snapshot_id`` is the
    *latest* snapshot, which may be further on, because segments are kept for a while behind a snapshot. None of a log
    that begins at 0 and has no snapshot but ``bootstrap.checkpoint``.

    ``voter_sets`` and ``kraft_versions`` hold (offset of the control record, value) in order; a static quorum has none.
    What a snapshot says counts at its end offset - 1; so what ``bootstrap.checkpoint`` says counts at -1, and the first
    leader repeats it in the log. ``end_offset`` counts what was recovered; all of that is taken as durable.
    """

    start: OffsetEpoch = OffsetEpoch(0, 0)
    end_offset: int = 0
    epochs: tuple[tuple[int, int], ...] = ()
    voter_sets: tuple[tuple[int, VoterSet], ...] = ()
    kraft_versions: tuple[tuple[int, int], ...] = ()
    snapshot_id: OffsetEpoch | None = None


class Settings(NamedTuple):
    """Of ``controller.quorum.*``, in milliseconds."""

    election_timeout_ms: int = 1_000
    election_backoff_max_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    auto_join: bool = False


# Batches. The core sees offsets, epochs and control records; the driver knows the bytes.


class LeaderChange(NamedTuple):
    leader_id: int
    voters: tuple[int, ...]
    granting_voters: tuple[int, ...]


class VotersChange(NamedTuple):
    voters: VoterSet


class KRaftVersionChange(NamedTuple):
    kraft_version: int


ControlRecord = LeaderChange | VotersChange | KRaftVersionChange


class Batch(NamedTuple):
    """``payload`` is the driver's (bytes); None for a control batch that the core itself wants written."""

    base_offset: int
    end_offset: int
    epoch: int
    control: tuple[ControlRecord, ...] = ()
    payload: object = None


# Requests between peers, one for each of Kafka's RPCs, with what the core needs of it.


class Vote(NamedTuple):
    epoch: int
    candidate: ReplicaKey
    voter: ReplicaKey
    last: OffsetEpoch
    pre_vote: bool


class BeginQuorumEpoch(NamedTuple):
    epoch: int
    leader_id: int
    voter: ReplicaKey
    leader_endpoints: tuple[Endpoint, ...]


class EndQuorumEpoch(NamedTuple):
    epoch: int
    leader: ReplicaKey
    preferred: tuple[ReplicaKey, ...]
    leader_endpoints: tuple[Endpoint, ...] = ()


class Fetch(NamedTuple):
    """``high_watermark`` is what the follower knows, as on the wire (KIP-1166): -1 when it knows none yet,
    ``UNSAID_HIGH_WATERMARK`` (the wire's default) when the version does not say."""

    epoch: int
    replica: ReplicaKey
    fetch_offset: int
    last_fetched_epoch: int
    max_wait_ms: int = 0
    high_watermark: int = UNSAID_HIGH_WATERMARK


class FetchSnapshot(NamedTuple):
    epoch: int
    replica: ReplicaKey
    snapshot_id: OffsetEpoch
    position: int


class UpdateVoter(NamedTuple):
    epoch: int
    voter: Voter


class AddVoter(NamedTuple):
    voter: Voter
    timeout_ms: int
    ack_when_committed: bool = True


class RemoveVoter(NamedTuple):
    key: ReplicaKey
    timeout_ms: int = 60_000


class ProbeVersions(NamedTuple):
    """An ApiVersions request to a node that is to become a voter, at the endpoints given (it may be in no voter
    set yet); answered with ``VersionsAnswer``: the range of kraft.version among its supported features."""

    voter: Voter


PeerRequest = (
    Vote
    | BeginQuorumEpoch
    | EndQuorumEpoch
    | Fetch
    | FetchSnapshot
    | UpdateVoter
    | AddVoter
    | RemoveVoter
    | ProbeVersions
)


# Responses. Each carries the answering node's view of leader and epoch, as Kafka's do.


class Answer(NamedTuple):
    """Of every request but Fetch and FetchSnapshot; ``granted`` matters for Vote only."""

    error: ErrorCode
    epoch: int = 0
    leader_id: int = NOBODY
    leader_endpoints: tuple[Endpoint, ...] = ()
    granted: bool = False
    message: str | None = None


class FetchAnswer(NamedTuple):
    """Exactly one of: records from ``read_from`` on (leader's side) or ``batches`` (follower's side), a diverging
    epoch, a snapshot to fetch instead, or an error. ``read_from`` is None when there is nothing to read."""

    error: ErrorCode
    epoch: int
    leader_id: int
    high_watermark: int = -1
    log_start_offset: int = 0
    read_from: int | None = None
    batches: tuple[Batch, ...] = ()
    diverging: OffsetEpoch | None = None
    snapshot_id: OffsetEpoch | None = None
    leader_endpoints: tuple[Endpoint, ...] = ()


class FetchSnapshotAnswer(NamedTuple):
    """The driver fills in or writes out the bytes; the core checks who answered and what comes next."""

    error: ErrorCode
    epoch: int
    leader_id: int
    snapshot_id: OffsetEpoch = OffsetEpoch(0, 0)
    position: int = 0
    size: int = 0
    payload: Sized = b""
    leader_endpoints: tuple[Endpoint, ...] = ()


class VersionsAnswer(NamedTuple):
    """Of ``ProbeVersions``: (0, 0) when the node does not name kraft.version."""

    error: ErrorCode
    min_kraft_version: int = 0
    max_kraft_version: int = 0


PeerAnswer = Answer | FetchAnswer | FetchSnapshotAnswer | VersionsAnswer


# Inputs of ``step``.


class Tick(NamedTuple):
    """Time has passed."""


class Received(NamedTuple):
    """A peer's (or, for Add/RemoveVoter, an administrator's) request; ``token`` comes back in ``Reply``."""

    token: object
    request: PeerRequest


class Answered(NamedTuple):
    """``peer`` is the id it was sent to; negative ids are bootstrap servers."""

    peer: int
    request: PeerRequest
    answer: PeerAnswer


class Failed(NamedTuple):
    """``refused``: there is nobody at the peer's address. A leader of which that is true need not be waited for."""

    peer: int
    request: PeerRequest
    refused: bool = False


class Propose(NamedTuple):
    """The leader's driver wants this appended; ``base_offset`` must be the end of the log, ``epoch`` the present one.
    Refused with NotLeader if that is not so."""

    batch: Batch


class Flushed(NamedTuple):
    """The log is durable up to here."""

    end_offset: int


class SnapshotTaken(NamedTuple):
    """This node wrote a snapshot of its own (at or below the high watermark). The log is as long as before."""

    snapshot_id: OffsetEpoch


class LogStartMoved(NamedTuple):
    """Segments behind a snapshot were removed: the log begins at this snapshot's end now. Followers further
    behind are sent to the latest snapshot."""

    snapshot_id: OffsetEpoch


class SnapshotInstalled(NamedTuple):
    """The download (``WriteSnapshotPart``) is complete and durable, the log was emptied and starts at its end.
    The voter set and kraft version are what the snapshot says."""

    snapshot_id: OffsetEpoch
    voters: VoterSet | None
    kraft_version: int


class Resign(NamedTuple):
    """Orderly shutdown, or the disk failed: give up leadership and tell the others."""


Input = (
    Tick | Received | Answered | Failed | Propose | Flushed | SnapshotTaken | LogStartMoved | SnapshotInstalled | Resign
)


# Effects.


class Send(NamedTuple):
    peer: int
    request: PeerRequest
    after_persist: bool = True


class Reply(NamedTuple):
    token: object
    answer: PeerAnswer
    after_persist: bool = True


class Append(NamedTuple):
    batches: tuple[Batch, ...]


class Truncate(NamedTuple):
    """Cut the log so that it ends here. Never below the high watermark."""

    end_offset: int


class WriteSnapshotPart(NamedTuple):
    """A piece of a snapshot being downloaded; the last one (position + its length == size) completes the file, after
    which the driver installs it (log emptied, starting at the snapshot's end) and steps ``SnapshotInstalled``."""

    snapshot_id: OffsetEpoch
    position: int
    size: int
    payload: Sized


Persist = ElectionState | Append | Truncate | WriteSnapshotPart


class LeaderAndEpoch(NamedTuple):
    """Published whenever it changes. A new leader may serve changes only when ``is_ready``: it has committed an entry
    of its own epoch, so its image holds everything that was ever acknowledged."""

    leader_id: int
    epoch: int
    is_ready: bool = False


@dataclass(slots=True)
class Effects:
    persist: list[Persist] = field(default_factory=list)
    send: list[Send | Reply] = field(default_factory=list)
    leadership: LeaderAndEpoch | None = None
    """Set when it changed in this step."""
    high_watermark: int | None = None
    """Set when it grew in this step; everything below is committed and may be applied."""
    deadline_ms: int = NO_DEADLINE
    """When the core wants its next Tick, always set."""
