"""A metadata quorum in one process: pure cores, a fake clock, one heap of events, all randomness from the seed.

Messages are lost, delayed, reordered and doubled; links break one way or both; nodes crash with loss of what was not
synced, freeze, and have clocks of different speed; disks are slow or fail.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any

from support.raft_checks import Checks
from support.raft_disk import SimDisk, SimLog

from controller.raft.node import RaftNode
from controller.raft.types import (
    NO_DEADLINE,
    Answer,
    Answered,
    Append,
    Batch,
    Endpoint,
    Failed,
    FetchAnswer,
    FetchSnapshotAnswer,
    Flushed,
    Input,
    LogStartMoved,
    NotLeader,
    OffsetEpoch,
    PeerAnswer,
    PeerRequest,
    Persist,
    ProbeVersions,
    Propose,
    Received,
    ReplicaKey,
    Reply,
    Resign,
    Send,
    Settings,
    SnapshotInstalled,
    SnapshotTaken,
    Tick,
    Truncate,
    VersionsAnswer,
    Vote,
    Voter,
    VoterSet,
    WriteSnapshotPart,
    bootstrap_index,
)
from protocol.errors import ErrorCode
from protocol.uuids import Uuid

SETTINGS = Settings(
    election_timeout_ms=200,
    election_backoff_max_ms=200,
    fetch_timeout_ms=400,
    request_timeout_ms=300,
    retry_backoff_ms=40,
    fetch_max_wait_ms=150,
)
SNAPSHOT_BYTES, PART_BYTES = 5, 2


def _nothing(node: SimNode) -> None:
    pass


def key_of(node_id: int) -> ReplicaKey:
    return ReplicaKey(node_id, Uuid(bytes([node_id]) * 16))


class SimNode:
    """One node with its disk: the driver's duties, done as badly as the contract allows."""

    def __init__(self, world: World, node_id: int, *, is_controller: bool, settings: Settings) -> None:
        self.world = world
        self.id = node_id
        self.key = key_of(node_id)
        self.is_controller = is_controller
        self.settings = settings
        self.disk = SimDisk()
        self.node: RaftNode | None = None
        self.incarnation = 0
        self.port = 9000
        self.rate = 1.0
        self.frozen_until = 0
        self.deadline = NO_DEADLINE
        self.timer = NO_DEADLINE
        self.timers = 0
        self.is_syncing = False
        self.outbox: list[tuple[int, Send | Reply]] = []
        self.unanswered: dict[object, tuple[Any, ...]] = {}
        """Requests of peers by token, with what tells the peer that its connection broke."""
        self.proposals: list[tuple[int, int, object]] = []
        self.led_epoch = -1

    @property
    def log(self) -> SimLog:
        return self.disk.memory

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        return (Endpoint("CONTROLLER", f"node-{self.id}", self.port),) if self.is_controller else ()

    @property
    def voter(self) -> Voter:
        return Voter(self.key, self.endpoints)

    @property
    def local_ms(self) -> int:
        return int(self.world.now * self.rate)

    # Life

    def start(self) -> None:
        self.incarnation += 1
        self.deadline = self.timer = NO_DEADLINE
        self.timers += 1
        self.is_syncing = False
        self.outbox = []
        self.proposals = []
        self.led_epoch = -1
        self.frozen_until = 0
        self.node = RaftNode(
            self.key,
            is_controller=self.is_controller,
            log=self.log.state(),
            election=self.world.remembered(self.disk.election),
            settings=self.settings,
            random=Random(self.world.rng.getrandbits(32)),
            endpoints=self.endpoints,
            static_voters=self.world.static_voters,
            bootstrap_servers=len(self.world.bootstrap),
            now_ms=self.local_ms,
        )
        self.step(Tick())

    def crash(self) -> None:
        """Its connections break; some peers notice at once."""
        self.node = None
        self.disk.crash(self.world.rng)
        unanswered, self.unanswered = self.unanswered, {}
        for failure in unanswered.values():
            if self.world.rng.random() < 0.5:
                self.world.at(self.world.now + self.world.rng.randrange(1, 10), *failure)

    def when_awake(self, action: Callable[[], None]) -> None:
        """A frozen node gets everything when it is thawed, in the old order; a dead one gets nothing."""
        incarnation = self.incarnation

        def run() -> None:
            if self.node is None or self.incarnation != incarnation:
                return
            if self.frozen_until > self.world.now:
                self.world.at(self.frozen_until, run)
            else:
                action()

        run()

    # Steps

    def step(self, event: Input) -> None:
        node = self.node
        assert node is not None
        effects = node.step(self.local_ms, event)
        disk = self.disk
        for op in effects.persist:
            self._write(op)
        for message in effects.send:
            self.outbox.append(
                (disk.written if message.after_persist else disk.election_barrier, self._filled(message))
            )
        self.deadline = effects.deadline_ms
        self._set_timer()
        if node.is_leader and self.led_epoch != node.epoch:
            self.led_epoch = node.epoch
            self.world.checks.on_elected(self)
            self.world.on_elected(self)
        self.world.checks.after_step(self)
        if effects.high_watermark is not None:
            self._acknowledge(node)
        self.drain()
        if disk.queue and not self.is_syncing:
            self._start_sync()

    def _write(self, op: Persist) -> None:
        if isinstance(op, Truncate):
            self.world.checks.on_removed(self, self.log.between(op.end_offset, self.log.end_offset))
        self.disk.write(op)

    def _set_timer(self) -> None:
        if self.deadline < self.timer:
            self.timer = self.deadline
            at = self.world.now + 1 if self.deadline <= self.local_ms else int(self.deadline / self.rate) + 1
            self.timers += 1
            self.world.at(max(at, self.world.now + 1), self._on_timer, self.timers)

    def _on_timer(self, timer: int) -> None:
        if timer != self.timers or self.node is None:
            return
        self.timer = NO_DEADLINE
        if self.deadline <= self.local_ms:
            self.when_awake(lambda: self.step(Tick()))
        else:
            self._set_timer()

    def _acknowledge(self, node: RaftNode) -> None:
        """A client hears that its change is committed, from the leader it gave it to, while that leads."""
        left = []
        for epoch, end_offset, payload in self.proposals:
            if node.is_leader and node.epoch == epoch:
                if node.high_watermark >= end_offset:
                    self.world.checks.acknowledged.add(payload)
                else:
                    left.append((epoch, end_offset, payload))
        self.proposals = left

    # The disk

    def _start_sync(self) -> None:
        if self.disk.is_broken:
            return
        self.is_syncing = True
        count = len(self.disk.queue)
        delay = self.world.sync_delay()
        self.world.at(self.world.now + delay, self._on_synced, self.incarnation, count)

    def _on_synced(self, incarnation: int, count: int) -> None:
        if incarnation != self.incarnation or self.node is None:
            return
        self.is_syncing = False
        if self.disk.is_broken:
            return
        before = self.disk.durable.end_offset
        done = self.disk.sync(count)
        installed = None
        for op in done:
            if isinstance(op, WriteSnapshotPart) and op.position + len(op.payload) == op.size:
                installed = op.snapshot_id
        changed = any(isinstance(op, Append) for op in done) or self.disk.durable.end_offset != before
        self.when_awake(lambda: self._after_sync(installed, changed))

    def _after_sync(self, installed: OffsetEpoch | None, changed: bool) -> None:
        if installed is not None:
            voters, kraft_version = self.world.checks.snapshots[installed]
            removed = self.log.between(max(installed.offset, self.log.start.offset), self.log.end_offset)
            self.world.checks.on_removed(self, removed)
            for log in (self.disk.memory, self.disk.durable):
                log.install(installed, voters, kraft_version)
            self.step(SnapshotInstalled(installed, voters, kraft_version))
        elif changed:
            self.step(Flushed(self.disk.flushed))
        self.drain()
        if self.disk.queue and not self.is_syncing:
            self._start_sync()

    def drain(self) -> None:
        """Messages leave in order as soon as what they rest on is durable."""
        synced = self.disk.written if self.world.skips_sync else self.disk.synced
        if not any(barrier <= synced for barrier, _ in self.outbox):
            return
        ready = [message for barrier, message in self.outbox if barrier <= synced]
        self.outbox = [entry for entry in self.outbox if entry[0] > synced]
        for message in ready:
            self.world.dispatch(self, message)

    # Bytes

    def _filled(self, message: Send | Reply) -> Send | Reply:
        """The answers the driver completes with bytes, read at once."""
        if not isinstance(message, Reply):
            return message
        answer = message.answer
        if isinstance(answer, FetchAnswer) and answer.read_from is not None:
            batches = self.log.read(answer.read_from, self.world.rng.randrange(1, self.world.max_batches + 1))
            answer = answer._replace(batches=batches, read_from=None)
        elif isinstance(answer, FetchSnapshotAnswer) and answer.error is ErrorCode.NONE:
            if answer.snapshot_id not in self.log.snapshots:
                answer = answer._replace(error=ErrorCode.SNAPSHOT_NOT_FOUND)
            else:
                part = min(PART_BYTES, SNAPSHOT_BYTES - answer.position)
                answer = answer._replace(size=SNAPSHOT_BYTES, payload=b"s" * part)
        else:
            return message
        return message._replace(answer=answer)

    # What the driver and its clients do

    def propose(self, payload: object) -> None:
        node = self.node
        assert node is not None
        base, epoch = node.log_end_offset, node.epoch
        batch = Batch(base, base + self.world.rng.randrange(1, 4), epoch, payload=payload)
        try:
            self.proposals.append((epoch, batch.end_offset, payload))
            self.step(Propose(batch))
        except NotLeader:
            self.proposals.pop()

    def take_snapshot(self) -> None:
        node = self.node
        assert node is not None
        offset = node.high_watermark
        latest = node.latest_snapshot_id
        if offset <= self.log.start.offset or (latest is not None and offset <= latest.offset):
            return
        epoch = self.log.between(self.log.start.offset, offset)[-1].epoch
        snapshot_id = OffsetEpoch(offset, epoch)
        self.world.checks.on_snapshot(snapshot_id, node.voters_at(offset), node.kraft_version_at(offset))
        for log in (self.disk.memory, self.disk.durable):
            log.snapshots.append(snapshot_id)
        self.step(SnapshotTaken(snapshot_id))

    def clean_up(self) -> None:
        """Segments behind a snapshot go once they are durable, as they are in files that were rolled."""
        snapshot_id = self.log.snapshots[-1] if self.log.snapshots else None
        if snapshot_id is None or snapshot_id.offset <= self.log.start.offset or snapshot_id.offset > self.disk.flushed:
            return
        for log in (self.disk.memory, self.disk.durable):
            log.move_start(snapshot_id)
        self.step(LogStartMoved(snapshot_id))

    def fail_disk(self) -> None:
        self.disk.is_broken = True
        self.step(Resign())


class World:
    def __init__(
        self,
        seed: int,
        *,
        voters: int = 3,
        spare_controllers: int = 0,
        brokers: int = 0,
        is_static: bool = False,
        settings: Settings = SETTINGS,
    ) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.now = 0
        self.events = 0
        self.checks = Checks()
        self.loss = self.doubling = 0.0
        self.max_delay = 10
        self.max_sync_delay = 10
        self.blocked: set[tuple[int, int]] = set()
        self.max_batches = 4
        """In one answer to a fetch."""
        self.on_elected: Callable[[SimNode], None] = _nothing
        self.on_vote: Callable[[SimNode], None] = _nothing
        """Moments at which a crash hurts most; faults hook in here. Called while the event goes on."""
        self.skips_sync = False
        self.forgets_votes = False
        self.static_voters: VoterSet = ()
        self.answers: list[tuple[PeerRequest, PeerAnswer]] = []
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        controllers = voters + spare_controllers
        self.nodes = {
            node_id: SimNode(self, node_id, is_controller=node_id <= controllers, settings=settings)
            for node_id in range(1, controllers + brokers + 1)
        }
        self.bootstrap = [node_id for node_id in self.nodes if node_id <= controllers]
        voter_set = tuple(self.nodes[node_id].voter for node_id in range(1, voters + 1))
        if is_static:
            self.static_voters = tuple(voter._replace(key=ReplicaKey(voter.key.id)) for voter in voter_set)
        for node in self.nodes.values():
            if not is_static and node.id <= voters:
                for log in (node.disk.memory, node.disk.durable):
                    log.voters_at_start, log.kraft_version_at_start = voter_set, 1

    # Time

    def at(self, when: int, action: Callable[..., None], *args: Any) -> None:
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, action, args))

    def run_until(self, end: int, *, until: Callable[[], bool] | None = None) -> bool:
        """Returns whether ``until`` came true; it is asked now and then, not after every event."""
        heap = self._heap
        while heap and heap[0][0] <= end:
            self.now, _, action, args = heapq.heappop(heap)
            action(*args)
            self.events += 1
            if until is not None and self.events % 50 == 0 and until():
                return True
        self.now = end
        return until is not None and until()

    def sync_delay(self) -> int:
        return self.rng.randrange(1, self.max_sync_delay + 1)

    def remembered(self, election: Any) -> Any:
        return election._replace(voted=None, leader_id=-1) if self.forgets_votes else election

    # Messages

    def _travel(self, source: int, target: int, arrive: Callable[..., None], *args: Any) -> bool:
        """False if nothing arrives."""
        rng = self.rng
        if (source, target) in self.blocked or (self.loss and rng.random() < self.loss):
            return False
        copies = 2 if self.doubling and rng.random() < self.doubling else 1
        for _ in range(copies):
            delay = rng.randrange(1, self.max_delay + 1)
            if self.loss and rng.random() < 0.02:
                delay *= 20
            self.at(self.now + delay, arrive, *args)
        return True

    def dispatch(self, node: SimNode, message: Send | Reply) -> None:
        assert node.node is not None
        if node.node.is_leader:
            self.checks.on_acting(node, node.node.epoch)
        if isinstance(message, Reply):
            if not isinstance(message.answer, VersionsAnswer):
                self.checks.on_spoken(node.key, message.answer.epoch)
            message.token(node, message.answer)
            if isinstance(message.answer, Answer) and message.answer.granted:
                self.on_vote(node)
            return
        request = message.request
        if isinstance(request, Vote) and not request.pre_vote:
            self.checks.on_spoken(node.key, request.epoch)
        peer = message.peer
        target_id = self.bootstrap[bootstrap_index(peer)] if peer < 0 else peer
        arrived = self._travel(node.id, target_id, self._arrive, node, node.incarnation, peer, target_id, request)
        if not arrived and self.rng.random() < 0.5:
            self.at(self.now + self.rng.randrange(1, 400), self._fail, node, node.incarnation, peer, request)

    def _fail(self, node: SimNode, incarnation: int, peer: int, request: PeerRequest, refused: bool = False) -> None:
        if node.incarnation == incarnation:
            node.when_awake(lambda: node.step(Failed(peer, request, refused)))

    def _arrive(self, source: SimNode, incarnation: int, peer: int, target_id: int, request: PeerRequest) -> None:
        target = self.nodes.get(target_id)
        if target is None or target.node is None:
            self.at(self.now + 2, self._fail, source, incarnation, peer, request, True)
            return

        def answer(who: SimNode, answer: PeerAnswer) -> None:
            who.unanswered.pop(token, None)
            self._travel(who.id, source.id, self._return, source, incarnation, peer, request, answer)

        token = answer
        if isinstance(request, ProbeVersions):
            answer(target, VersionsAnswer(ErrorCode.NONE, 0, 1))
        else:
            target.unanswered[token] = (self._fail, source, incarnation, peer, request)
            target.when_awake(lambda: target.step(Received(token, request)))

    def _return(self, source: SimNode, incarnation: int, peer: int, request: PeerRequest, answer: PeerAnswer) -> None:
        if source.incarnation == incarnation:
            source.when_awake(lambda: source.step(Answered(peer, request, answer)))

    # An administrator

    def ask(self, node: SimNode, request: PeerRequest) -> None:
        """Without a network in between; the answer is kept in ``answers``."""
        token = lambda who, answer: self.answers.append((request, answer))  # noqa: E731
        node.when_awake(lambda: node.step(Received(token, request)))

    # Looking on

    @property
    def alive(self) -> list[SimNode]:
        return [node for node in self.nodes.values() if node.node is not None]

    def leader(self) -> SimNode | None:
        """The one that leads in the highest epoch and may act."""
        leading = [node for node in self.alive if node.node and node.node.is_leader and node.node.leadership.is_ready]
        return max(leading, key=lambda node: node.node.epoch if node.node else 0, default=None)

    def has_converged(self) -> bool:
        leader = self.leader()
        if leader is None or leader.node is None:
            return False
        end, epoch = leader.node.log_end_offset, leader.node.epoch
        return leader.node.high_watermark == end and all(
            node.node is not None
            and (node.node.epoch, node.node.log_end_offset, node.node.high_watermark) == (epoch, end, end)
            for node in self.nodes.values()
        )
