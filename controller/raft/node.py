"""The way into the core: ``RaftNode.step(now_ms, input) -> Effects``.

A step takes the input in, then lets the role act on the time and on what has changed, until nothing changes any more.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from controller.raft.core import Core
from controller.raft.epochs import Epochs
from controller.raft.following import Following
from controller.raft.leading import Leading
from controller.raft.roles.follower import Follower
from controller.raft.roles.leader import OBSERVER_SESSION_MS, Leader, Progress
from controller.raft.roles.nominee import Nominee
from controller.raft.roles.resigned import Resigned
from controller.raft.serving import Serving
from controller.raft.types import (
    NO_DEADLINE,
    NOBODY,
    AddVoter,
    Answer,
    Answered,
    BeginQuorumEpoch,
    Effects,
    ElectionState,
    Endpoint,
    EndQuorumEpoch,
    Failed,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    Flushed,
    Input,
    LeaderAndEpoch,
    LogStartMoved,
    LogState,
    OffsetEpoch,
    PeerRequest,
    ProbeVersions,
    Propose,
    RaftError,
    Received,
    RemoveVoter,
    ReplicaKey,
    Resign,
    Settings,
    SnapshotInstalled,
    SnapshotTaken,
    UpdateVoter,
    VersionsAnswer,
    Vote,
    VoterSet,
)
from controller.raft.voter_changes import VoterChanges
from controller.raft.voters import find_replica
from controller.raft.voting import Voting
from protocol.errors import ErrorCode

MAX_SWAPS = 10  # roles a node may pass through in one step; unattached to leader of a quorum of one takes four


class ReplicaState(NamedTuple):
    """As in DescribeQuorum; -1 where the leader has not heard from the replica in its epoch."""

    key: ReplicaKey
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class RaftNode:
    def __init__(
        self,
        me: ReplicaKey,
        *,
        is_controller: bool,
        log: LogState,
        election: ElectionState,
        settings: Settings,
        random: Random,
        endpoints: tuple[Endpoint, ...] = (),
        static_voters: VoterSet = (),
        bootstrap_servers: int = 0,
        now_ms: int = 0,
    ) -> None:
        """``endpoints`` are this node's own on its controller listeners, the default one first.

        ``static_voters`` (``controller.quorum.voters``, directory ids zero) count as long as the log names no voters.
        ``bootstrap_servers`` is the number of ``controller.quorum.bootstrap.servers``; they are the peers -2, -3, …
        A broker (``is_controller`` false) is an observer for ever.
        """
        core = self._core = Core(
            me,
            is_controller=is_controller,
            log=log,
            settings=settings,
            random=random,
            endpoints=endpoints,
            static_voters=static_voters,
            bootstrap_servers=bootstrap_servers,
        )
        self._leading = Leading(core)
        self._serving = Serving(core, self._leading)
        self._following = Following(core)
        self._voting = Voting(core, self._leading)
        self._epochs = Epochs(core)
        self._voter_changes = VoterChanges(core, self._leading, self._serving)
        self._published: LeaderAndEpoch | None = None
        core.restore(election, now_ms)

    def step(self, now_ms: int, event: Input) -> Effects:
        """Raises NotLeader for a refused ``Propose``, RaftError when told what cannot be."""
        core = self._core
        core.now_ms = max(now_ms, core.now_ms)
        self._take(event)
        deadline_ms = self._act()
        effects, core.effects = core.effects, Effects()
        effects.deadline_ms = max(deadline_ms, core.now_ms + 1)
        published = self.leadership
        if published != self._published:
            self._published = effects.leadership = published
        return effects

    # Inputs

    def _take(self, event: Input) -> None:
        core = self._core
        if isinstance(event, Received):
            self._on_request(event.token, event.request)
        elif isinstance(event, Answered):
            self._on_answer(event)
        elif isinstance(event, Failed):
            if core.peers.settle(event.peer, event.request):
                core.peers.rest(event.peer, core.now_ms)
                if isinstance(event.request, ProbeVersions):
                    self._voter_changes.on_probe_failed(event.request)
                elif event.refused:
                    self._following.on_refused(event.peer)
        elif isinstance(event, Propose):
            self._leading.propose(event.batch)
        elif isinstance(event, Flushed):
            self._leading.on_flushed(event.end_offset)
        elif isinstance(event, SnapshotTaken):
            self._on_snapshot_taken(event.snapshot_id)
        elif isinstance(event, LogStartMoved):
            core.log.move_start(event.snapshot_id)
            core.history.forget_before(event.snapshot_id.offset)
        elif isinstance(event, SnapshotInstalled):
            self._following.on_snapshot_installed(event)
        elif isinstance(event, Resign):
            self._leading.resign()

    def _on_snapshot_taken(self, snapshot_id: OffsetEpoch) -> None:
        log = self._core.log
        if snapshot_id.offset > log.high_watermark:
            raise RaftError(f"the snapshot {snapshot_id} holds what is not committed: {log.high_watermark}")
        if log.snapshot_id is None or snapshot_id.offset > log.snapshot_id.offset:
            log.snapshot_id = snapshot_id

    def _on_request(self, token: object, request: PeerRequest) -> None:
        if isinstance(request, Fetch):
            self._serving.on_fetch(token, request)
        elif isinstance(request, FetchSnapshot):
            self._serving.on_fetch_snapshot(token, request)
        elif isinstance(request, Vote):
            self._voting.on_vote(token, request)
        elif isinstance(request, BeginQuorumEpoch):
            self._epochs.on_begin(token, request)
        elif isinstance(request, EndQuorumEpoch):
            self._epochs.on_end(token, request)
        elif isinstance(request, AddVoter):
            self._voter_changes.on_add(token, request)
        elif isinstance(request, RemoveVoter):
            self._voter_changes.on_remove(token, request)
        elif isinstance(request, UpdateVoter):
            self._voter_changes.on_update(token, request)
        else:
            raise RaftError(f"{request} is answered by the driver")

    def _on_answer(self, event: Answered) -> None:
        """First what the answer says of the epoch, then what it says to the request, if it still matters."""
        core = self._core
        peer, request, answer = event
        if not core.peers.settle(peer, request):
            return
        if isinstance(answer, VersionsAnswer):
            if isinstance(request, ProbeVersions):
                self._voter_changes.on_versions(request, answer)
            return
        if answer.epoch < core.epoch and answer.error is not ErrorCode.UNSUPPORTED_VERSION:
            core.peers.rest(peer, core.now_ms)
            return
        if answer.epoch > core.epoch:
            core.learn(answer.epoch, answer.leader_id, answer.leader_endpoints)
            return
        if answer.epoch == core.epoch:
            core.learn(answer.epoch, answer.leader_id, answer.leader_endpoints)
        if isinstance(request, Fetch) and isinstance(answer, FetchAnswer):
            self._following.on_fetch_answer(peer, request, answer)
        elif isinstance(request, FetchSnapshot) and isinstance(answer, FetchSnapshotAnswer):
            self._following.on_snapshot_answer(peer, request, answer)
        elif isinstance(answer, Answer):
            self._on_plain_answer(peer, request, answer)

    def _on_plain_answer(self, peer: int, request: PeerRequest, answer: Answer) -> None:
        core = self._core
        role = core.role
        if isinstance(request, Vote):
            self._voting.on_answer(peer, request, answer)
        elif isinstance(request, EndQuorumEpoch):
            if isinstance(role, Resigned) and answer.error is ErrorCode.NONE:
                role.untold.discard(peer)
        elif isinstance(request, UpdateVoter):
            self._voter_changes.on_update_answer(answer)
        if answer.error is not ErrorCode.NONE:
            core.peers.rest(peer, core.now_ms)

    # Time

    def _act(self) -> int:
        for _ in range(MAX_SWAPS):
            role = self._core.role
            deadline_ms = self._poll()
            if self._core.role is role:
                return deadline_ms
        raise RaftError(f"{self._core.role} does not come to rest")

    def _poll(self) -> int:
        core = self._core
        role = core.role
        if isinstance(role, Leader):
            return self._poll_leader(role)
        if core.installing is not None:
            return NO_DEADLINE
        if isinstance(role, Nominee):
            return self._voting.poll(role)
        if isinstance(role, Resigned):
            return self._poll_resigned(role)
        return self._poll_waiting()

    def _poll_leader(self, leader: Leader) -> int:
        core = self._core
        self._leading.update_high_watermark(leader)
        deadline_ms = min(self._voter_changes.poll(leader), self._serving.poll(leader))
        if leader.must_resign or leader.has_lost_quorum(core.voters, core.now_ms):
            self._leading.resign()
            return deadline_ms
        if core.remote_voters:
            deadline_ms = min(deadline_ms, leader.quorum_deadline_ms, self._leading.poll_begin(leader))
        return deadline_ms

    def _poll_resigned(self, role: Resigned) -> int:
        core = self._core
        if core.now_ms >= role.election_deadline_ms:
            core.quorum.become_unattached(role.epoch + 1, core.now_ms)
            return core.now_ms
        request = EndQuorumEpoch(role.epoch, core.me, role.preferred, core.endpoints)
        deadline_ms = self._leading.poll_end(role.untold, request)
        return role.election_deadline_ms if deadline_ms is None else min(deadline_ms, role.election_deadline_ms)

    def _poll_waiting(self) -> int:
        """Unattached, voted or follower: a voter stands when it has waited long enough, alone it need not wait."""
        core = self._core
        role = core.role
        is_voter = core.quorum.is_voter
        if is_voter and (core.now_ms >= role.election_deadline_ms or not core.remote_voters):
            core.quorum.become_prospective(core.now_ms)
            return core.now_ms
        if not isinstance(role, Follower):
            deadline_ms = self._following.ask_around()
        elif self._voter_changes.poll_follower(role):
            deadline_ms = core.peers.when_ready(role.leader_id, core.now_ms)
        else:
            deadline_ms = self._following.poll(role)
            if role.voter_change_ms > core.now_ms:
                deadline_ms = min(deadline_ms, role.voter_change_ms)
        return min(deadline_ms, role.election_deadline_ms) if is_voter else deadline_ms

    # Of the quorum as this node sees it.

    @property
    def leadership(self) -> LeaderAndEpoch:
        return LeaderAndEpoch(self.leader_id, self._core.epoch, self._core.is_ready)

    @property
    def role_name(self) -> str:
        """Unattached, Voted, Prospective, Candidate, Leader, Resigned, Follower, or Observer."""
        role = self._core.role
        if isinstance(role, (Leader, Resigned, Nominee)) or self._core.quorum.is_voter:
            return role.name
        return "Observer"

    @property
    def epoch(self) -> int:
        return self._core.epoch

    @property
    def leader_id(self) -> int:
        """NOBODY when unknown, and when it was this node until it resigned."""
        role = self._core.role
        return role.leader_id if role.leader_id != self._core.me.id or isinstance(role, Leader) else NOBODY

    @property
    def is_leader(self) -> bool:
        return isinstance(self._core.role, Leader)

    @property
    def is_voter(self) -> bool:
        return self._core.quorum.is_voter

    @property
    def high_watermark(self) -> int:
        """Everything below is committed; at least the end of the latest snapshot, never falls."""
        return self._core.log.high_watermark

    @property
    def log_end_offset(self) -> int:
        """Where the next batch goes: ``Propose.batch.base_offset``."""
        return self._core.log.end_offset

    @property
    def log_start_offset(self) -> int:
        return self._core.log.start.offset

    @property
    def latest_snapshot_id(self) -> OffsetEpoch | None:
        return self._core.log.snapshot_id

    @property
    def voters(self) -> VoterSet:
        return self._core.voters

    @property
    def kraft_version(self) -> int:
        return self._core.history.kraft_version

    def voters_at(self, end_offset: int) -> VoterSet | None:
        """What a snapshot that ends here has to say; None when the log names no voters (a static quorum)."""
        return self._core.history.voters_at(end_offset)

    def kraft_version_at(self, end_offset: int) -> int:
        return self._core.history.kraft_version_at(end_offset)

    def endpoints_of(self, peer: int) -> tuple[Endpoint, ...]:
        """Where to reach a peer; empty when not known (and for bootstrap servers)."""
        return self._core.endpoints_of(peer)

    # Of a leader: DescribeQuorum. Empty on other nodes.

    def voter_states(self, now_ms: int) -> list[ReplicaState]:
        core, role = self._core, self._core.role
        if not isinstance(role, Leader):
            return []
        states = []
        for voter in core.voters:
            if find_replica((voter,), core.me) is not None:
                states.append(ReplicaState(voter.key, core.log.end_offset, now_ms, now_ms))
            else:
                states.append(_state(voter.key, role.progress.get(voter.key, Progress())))
        return states

    def observer_states(self, now_ms: int) -> list[ReplicaState]:
        core, role = self._core, self._core.role
        if not isinstance(role, Leader):
            return []
        return [
            _state(key, progress)
            for key, progress in sorted(role.progress.items())
            if find_replica(core.voters, key) is None and progress.last_fetch_ms > now_ms - OBSERVER_SESSION_MS
        ]


def _state(key: ReplicaKey, progress: Progress) -> ReplicaState:
    return ReplicaState(key, progress.end_offset, progress.last_fetch_ms, progress.last_caught_up_ms)
