"""What all parts of the core share: the log's shape, the voters, the role, the peers, and the effects of this step."""

from __future__ import annotations

from random import Random

from controller.raft.log_shape import LogShape
from controller.raft.peers import Peers
from controller.raft.quorum import Quorum
from controller.raft.roles.base import Role
from controller.raft.roles.leader import Leader
from controller.raft.roles.unattached import Unattached
from controller.raft.types import (
    NOBODY,
    Answer,
    Append,
    Batch,
    Effects,
    ElectionState,
    Endpoint,
    FetchAnswer,
    LogState,
    OffsetEpoch,
    PeerAnswer,
    PeerRequest,
    RaftError,
    ReplicaKey,
    Reply,
    Send,
    Settings,
    Truncate,
    Voter,
    VoterSet,
)
from controller.raft.voters import VoterHistory
from protocol.errors import ErrorCode
from protocol.uuids import Uuid


class Core:
    def __init__(
        self,
        me: ReplicaKey,
        *,
        is_controller: bool,
        log: LogState,
        settings: Settings,
        random: Random,
        endpoints: tuple[Endpoint, ...],
        static_voters: VoterSet,
        bootstrap_servers: int,
    ) -> None:
        self.me = me
        self.is_controller = is_controller
        self.settings = settings
        self.random = random
        self.endpoints = endpoints
        self.bootstrap_servers = bootstrap_servers
        self.log = LogShape(log)
        self.history = VoterHistory(log, static_voters)
        self.peers = Peers(settings)
        self.effects = Effects()
        self.now_ms = 0
        self.installing: OffsetEpoch | None = None
        """A snapshot whose last bytes are with the driver. Until it says that the log was replaced, the core knows
        neither the log nor the voters for sure: it fetches nothing and does not stand for election."""
        self._stored = ElectionState()
        self.quorum = Quorum(
            me,
            is_controller=is_controller,
            endpoints=endpoints,
            history=self.history,
            settings=settings,
            random=random,
            on_change=self._on_role_changed,
        )

    # Reading

    @property
    def role(self) -> Role:
        return self.quorum.role

    @property
    def epoch(self) -> int:
        return self.quorum.role.epoch

    @property
    def is_ready(self) -> bool:
        return isinstance(self.role, Leader) and self.role.is_ready

    @property
    def voters(self) -> VoterSet:
        return self.history.voters

    @property
    def own_voter(self) -> Voter:
        """This node as it should stand in a voter set."""
        return Voter(self.me, self.endpoints)

    @property
    def remote_voters(self) -> list[Voter]:
        return [voter for voter in self.history.voters if voter.key.id != self.me.id]

    def endpoints_of(self, peer: int) -> tuple[Endpoint, ...]:
        role = self.role
        if peer == role.leader_id and role.leader_endpoints:
            return role.leader_endpoints
        return self.quorum.endpoints_in_set(peer)

    def is_me(self, key: ReplicaKey) -> bool:
        """Whether a request for ``key`` is for this replica; peers of static quorums do not name directories."""
        return key.id in (self.me.id, NOBODY) and key.directory_id in (Uuid.ZERO, self.me.directory_id)

    # Effects

    def send(self, peer: int, request: PeerRequest, *, after_persist: bool = True) -> None:
        self.peers.sent(peer, request, self.now_ms)
        self.effects.send.append(Send(peer, request, after_persist))

    def reply(self, token: object, answer: PeerAnswer, *, after_persist: bool = True) -> None:
        self.effects.send.append(Reply(token, answer, after_persist))

    def answer(self, error: ErrorCode = ErrorCode.NONE, *, granted: bool = False, message: str | None = None) -> Answer:
        """With this node's view of leader and epoch, from which every peer learns."""
        role = self.role
        endpoints = self.endpoints_of(role.leader_id) if role.leader_id != NOBODY else ()
        return Answer(error, role.epoch, role.leader_id, endpoints, granted, message)

    def fetch_refusal(self, error: ErrorCode) -> FetchAnswer:
        role = self.role
        endpoints = self.endpoints_of(role.leader_id) if role.leader_id != NOBODY else ()
        return FetchAnswer(error, role.epoch, role.leader_id, leader_endpoints=endpoints)

    def append(self, batches: tuple[Batch, ...]) -> None:
        names_voters = False
        for batch in batches:
            self.log.append(batch)
            names_voters |= self.history.on_append(batch)
        self.effects.persist.append(Append(batches))
        if names_voters and isinstance(self.role, Leader):
            self.role.on_voters_changed(self.now_ms)

    def truncate(self, end_offset: int) -> None:
        self.log.truncate(end_offset)
        self.history.truncate(end_offset)
        self.effects.persist.append(Truncate(end_offset))

    def raise_high_watermark(self, offset: int) -> bool:
        """To what is here of it. Never down: someone may have acted on it."""
        offset = min(offset, self.log.end_offset)
        if offset <= self.log.high_watermark:
            return False
        self.log.high_watermark = self.effects.high_watermark = offset
        return True

    # Roles

    def restore(self, election: ElectionState, now_ms: int) -> None:
        self.now_ms = now_ms
        self._stored = election
        self.quorum.restore(election, self.log.last, now_ms)
        self.persist_election()

    def persist_election(self) -> None:
        if self.role.election != self._stored:
            self._stored = self.role.election
            self.effects.persist.append(self._stored)

    def _on_role_changed(self, old: Role, new: Role) -> None:
        self.persist_election()
        self.peers.reset()
        if isinstance(old, Leader):
            self._dismiss(old)

    def _dismiss(self, leader: Leader) -> None:
        """Who waits at a leader that is none any more hears so at once, and who leads now if that is known."""
        for fetch in leader.waiting:
            self.reply(fetch.token, self.fetch_refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER), after_persist=False)
        leader.waiting.clear()
        change, leader.change = leader.change, None
        if change is not None and change.token is not None:
            self.reply(
                change.token,
                self.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER, message="The leader gave up its epoch"),
                after_persist=False,
            )

    # What peers tell of the epoch

    def learn(self, epoch: int, leader_id: int, endpoints: tuple[Endpoint, ...]) -> None:
        """Follow a higher epoch, or the leader of this one if none was known. Never called with a lower epoch."""
        role = self.role
        if leader_id == self.me.id:
            # Nobody can know more of this node's leadership than the node; it may have lost its disk since.
            if epoch > role.epoch:
                self.quorum.become_unattached(epoch, self.now_ms)
            return
        endpoints = endpoints or (self.quorum.endpoints_in_set(leader_id) if leader_id != NOBODY else ())
        if epoch > role.epoch:
            if endpoints:
                self.quorum.become_follower(epoch, leader_id, endpoints, self.now_ms)
            else:
                self.quorum.become_unattached(epoch, self.now_ms, leader_id)
        elif leader_id != NOBODY:
            if role.leader_id not in (NOBODY, leader_id):
                # Two leaders in one epoch: consensus is broken, here or there. Going on could only spread it.
                raise RaftError(f"{role} is told that {leader_id} leads the same epoch")
            if endpoints and not role.leader_endpoints:
                self.quorum.become_follower(epoch, leader_id, endpoints, self.now_ms)
            elif role.leader_id == NOBODY and isinstance(role, Unattached):
                self.quorum.become_unattached(epoch, self.now_ms, leader_id)
