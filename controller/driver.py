"""The driver of the Raft core: files, messages and the clock around ``raft.node``.

Inputs go in one at a time, and their effects are performed in order. What must not leave before it is durable waits in
a queue: one sync at a time runs in a thread (the election state first, then the log), and when it is done, all that
waited for it goes out. An append that fails leaves the core knowing more than the disk, so the core is thrown away and
made again from the disk, as a restart of the process would; a sync that fails ends this node's part in the quorum,
because nobody knows any more what its disk holds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from random import Random
from typing import Final, Protocol

from config.broker import BrokerConfig
from controller.checkpoint import SnapshotId
from controller.durability import Durability
from controller.metadata_log import MetadataLog
from controller.quorum_state import read_quorum_state
from controller.raft.node import RaftNode
from controller.raft.types import (
    NO_DEADLINE,
    NOBODY,
    Append,
    Batch,
    Effects,
    ElectionState,
    Endpoint,
    EndQuorumEpoch,
    Flushed,
    Input,
    LeaderAndEpoch,
    LogStartMoved,
    NotLeader,
    OffsetEpoch,
    PeerAnswer,
    PeerRequest,
    ProbeVersions,
    Propose,
    RaftError,
    Received,
    ReplicaKey,
    Reply,
    Resign,
    Send,
    Settings,
    SnapshotTaken,
    Tick,
    Truncate,
    VoterSet,
    WriteSnapshotPart,
    bootstrap_index,
)
from controller.raft_calls import Peers, call_peer
from controller.snapshot_download import SnapshotDownload
from protocol.errors import ApiError, ErrorCode
from storage.errors import StorageError

_log = logging.getLogger(__name__)

RESTART_DELAY_S: Final = 1.0
"""After a failed append: a full disk stays full for a while, and the others should elect someone in the meantime."""

FAREWELL_S: Final = 1.0
"""How long a leader that stops waits for the others to hear of it; without that they find out by a time-out."""


class Follower(Protocol):
    """Who is told what the quorum decided. Nothing here may block or raise."""

    def on_progress(self, leadership: LeaderAndEpoch, high_watermark: int) -> None:
        """One of the two changed. Everything below the high watermark is committed and can be read from the log."""

    def on_snapshot_installed(self, download: SnapshotDownload) -> None:
        """The log was replaced by the leader's snapshot."""

    def on_disk_failed(self, error: StorageError) -> None:
        """The metadata log can no longer be written; this node leads nothing any more."""

    def on_contradiction(self, error: RaftError) -> None:
        """The quorum's messages, or the disk, contradict what is committed here."""


class RaftDriver:
    def __init__(
        self,
        config: BrokerConfig,
        log: MetadataLog,
        follower: Follower,
        *,
        peers: Peers,
        random: Random,
        endpoints: tuple[Endpoint, ...],
        static_voters: VoterSet,
    ) -> None:
        self.leadership = LeaderAndEpoch(NOBODY, 0)
        self.node: RaftNode
        self._config = config
        self._log = log
        self._follower = follower
        self._peers = peers
        self._random = random
        self._endpoints = endpoints
        self._static_voters = static_voters
        self._me = ReplicaKey(config.node_id, log.node.metadata_directory_id)
        self._loop = asyncio.get_running_loop()
        self._inputs: deque[Input] = deque()
        self._stepping = False
        self._has_news = False
        self._stopped = True
        self._failed = False
        self._durability = Durability(
            log,
            self._me,
            dispatch=self._dispatch,
            on_flushed=lambda end_offset: self.step(Flushed(end_offset)),
            on_failed=self._on_sync_failed,
        )
        self._timer: asyncio.TimerHandle | None = None
        self._calls: set[asyncio.Task[None]] = set()
        self._waiting: set[asyncio.Future[PeerAnswer]] = set()
        self._download: SnapshotDownload | None = None
        self._installing: asyncio.Task[None] | None = None
        self._restart: asyncio.Task[None] | None = None

    # Life

    def start(self) -> None:
        """Take part, from what the disk has. The log must be open, and all of it durable."""
        self._make_core()
        self._stopped = False
        self.step(Tick())

    def _make_core(self) -> None:
        config = self._config
        stored = read_quorum_state(self._log.directory)
        voted = ReplicaKey(stored.voted_id, stored.voted_directory_id) if stored.voted_id >= 0 else None
        self.node = RaftNode(
            self._me,
            is_controller="controller" in config.process_roles,
            log=self._log.log_state(),
            election=ElectionState(stored.leader_epoch, stored.leader_id, voted),
            settings=Settings(
                election_timeout_ms=config.controller_quorum_election_timeout_ms,
                election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
                fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
                request_timeout_ms=config.controller_quorum_request_timeout_ms,
                retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
                auto_join=config.controller_quorum_auto_join_enable,
            ),
            random=self._random,
            endpoints=self._endpoints,
            static_voters=self._static_voters,
            bootstrap_servers=len(config.controller_quorum_bootstrap_servers),
            now_ms=self.now_ms(),
        )

    def resign(self) -> None:
        """Give up leadership and tell the others, so that they need not wait for a time-out."""
        if not self._stopped:
            self.step(Resign())

    async def resign_before_stop(self) -> None:
        """The same, and wait a moment for the others to hear it. Without others there is nothing to give up."""
        if self._stopped or not self.node.is_leader or len(self.node.voters) == 1:
            return
        self.resign()
        await self._durability.drain(FAREWELL_S)
        if self._calls:
            await asyncio.wait(self._calls, timeout=FAREWELL_S)

    async def stop(self) -> None:
        """Returns when no thread and no task of the driver uses the log any more."""
        self._leave()
        if self._restart is not None:
            self._restart.cancel()
            await asyncio.wait({self._restart})
        await self._durability.drain()
        if self._installing is not None:
            await asyncio.wait({self._installing})
        for call in list(self._calls):
            call.cancel()
        if self._calls:
            await asyncio.wait(self._calls)
        if self._download is not None:
            self._download.discard()

    # What goes in

    def receive(self, request: PeerRequest) -> asyncio.Future[PeerAnswer]:
        """A peer's or an administrator's request; the answer comes when the core has it and it may leave."""
        if self._stopped:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "This node does not take part in the quorum at present.")
        token: asyncio.Future[PeerAnswer] = self._loop.create_future()
        self._waiting.add(token)
        token.add_done_callback(self._waiting.discard)
        self.step(Received(token, request))
        return token

    def propose(self, batch: Batch) -> None:
        """Append a leader's batch. Raises NotLeader, or StorageError when the disk did not take it.

        The bytes go to the log first, because a core that was told of them could not be told that they are missing.
        """
        node = self.node
        if self._stopped or not node.is_leader or (batch.epoch, batch.base_offset) != (node.epoch, node.log_end_offset):
            raise NotLeader(f"a batch of epoch {batch.epoch} at {batch.base_offset} cannot be appended")
        self._log.append(batch)
        self.step(Propose(batch._replace(payload=_WRITTEN)))

    def step(self, event: Input) -> None:
        """One input and its effects; an input that comes from within is taken after the present one."""
        self._inputs.append(event)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._inputs and not self._stopped:
                self._perform(self.node.step(self.now_ms(), self._inputs.popleft()))
            self._inputs.clear()
        except StorageError as error:
            self._inputs.clear()
            self._restart_core(error)
        except RaftError as error:  # what it was told contradicts what is committed: no node may go on from there
            self._inputs.clear()
            self._leave()
            self._follower.on_contradiction(error)
        finally:
            self._stepping = False
        self._tell()

    def _tell(self) -> None:
        """Outside of a step, because whoever hears it may have something to propose."""
        if self._has_news:
            self._has_news = False
            self._follower.on_progress(self.leadership, self._log.high_watermark)

    @property
    def high_watermark(self) -> int:
        return self.node.high_watermark

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    # What comes out

    def _perform(self, effects: Effects) -> None:
        for item in effects.persist:
            if isinstance(item, ElectionState):
                self._durability.note_election(item)
                continue
            self._durability.note_log()
            if isinstance(item, Append):
                for batch in item.batches:
                    if batch.payload is not _WRITTEN:
                        self._log.append(batch)
            elif isinstance(item, Truncate):
                self._log.truncate_to(item.end_offset)
            else:
                self._write_snapshot_part(item)
        for message in effects.send:
            self._durability.send(message)
        self._durability.start_sync()
        self._arm(effects.deadline_ms)
        if effects.high_watermark is not None:
            self._log.log.advance_high_watermark(effects.high_watermark)
        if effects.leadership is not None:
            self._on_leadership(effects.leadership)
        if effects.leadership is not None or effects.high_watermark is not None:
            self._has_news = True

    def _on_leadership(self, leadership: LeaderAndEpoch) -> None:
        if (leadership.leader_id, leadership.epoch) != self.leadership[:2]:
            leader = "nobody" if leadership.leader_id == NOBODY else f"node {leadership.leader_id}"
            _log.info("The metadata quorum is led by %s in epoch %d", leader, leadership.epoch)
        self.leadership = leadership

    def _arm(self, deadline_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline_ms < NO_DEADLINE:
            # A timer may fire a hair early: a millisecond more makes sure that the deadline is over.
            self._timer = self._loop.call_at((deadline_ms + 1) / 1000, self.step, Tick())

    def _dispatch(self, message: Send | Reply) -> None:
        if isinstance(message, Reply):
            token = message.token
            assert isinstance(token, asyncio.Future)
            if not token.done():
                token.set_result(message.answer)
            return
        if message.peer == self._me.id:
            return
        call = asyncio.create_task(self._call(message.peer, message.request, self.node))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _call(self, peer: int, request: PeerRequest, node: RaftNode) -> None:
        outcome = await call_peer(
            self._peers,
            peer,
            self.address_of(peer, request),
            request,
            config=self._config,
            cluster_id=self._log.node.cluster_id,
        )
        if self._stopped or self.node is not node:
            return  # asked by a core that is no more
        self.step(outcome)

    def address_of(self, peer: int, request: PeerRequest | None = None) -> tuple[str, int] | None:
        """Where the peer is reached, or was when its address was last told; a probe names its own target."""
        if peer < NOBODY:
            servers = self._config.controller_quorum_bootstrap_servers
            index = bootstrap_index(peer)
            return (servers[index].host, servers[index].port) if index < len(servers) else None
        endpoints = request.voter.endpoints if isinstance(request, ProbeVersions) else self.node.endpoints_of(peer)
        names = self._config.controller_listener_names
        best = next(
            (one for one in endpoints if names and one.listener == names[0]), endpoints[0] if endpoints else None
        )
        return None if best is None else (best.host, best.port)

    # Failures

    def _on_sync_failed(self, error: OSError | StorageError) -> None:
        if isinstance(error, StorageError):
            self._fail(error)
        else:
            self._restart_core(StorageError(f"writing quorum-state failed: {error}", self._log.directory))
            self._tell()

    def _fail(self, error: StorageError) -> None:
        """What the disk holds is unknown now. The others hear that this node leads no more; that promises nothing."""
        if self._failed:
            return
        self._failed = True
        _log.error("This node no longer takes part in the metadata quorum: %s", error)
        self._inputs.clear()
        with contextlib.suppress(StorageError):
            for message in self.node.step(self.now_ms(), Resign()).send:
                if isinstance(message, Send) and isinstance(message.request, EndQuorumEpoch):
                    self._dispatch(message)
        self._leave()
        self._follower.on_disk_failed(error)

    def _restart_core(self, error: StorageError) -> None:
        """An append or a truncation did not happen: go back to what the disk has, after a while."""
        if not self._log.is_online:
            self._fail(error)
            return
        _log.error("This node leaves the metadata quorum for %.0f s: %s", RESTART_DELAY_S, error)
        self._leave()
        self._has_news = True
        self._restart = asyncio.create_task(self._come_back(), name="return to the metadata quorum")

    async def _come_back(self) -> None:
        await asyncio.sleep(RESTART_DELAY_S)
        await self._durability.drain()
        if self._installing is not None:
            await asyncio.wait({self._installing})
        try:
            await self._log.flush()
        except StorageError as error:
            self._fail(error)
            return
        self._restart = None
        self._durability.resume()
        self.start()

    def _leave(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._durability.stop()
        self._fail_waiting()
        self.leadership = LeaderAndEpoch(NOBODY, self.leadership.epoch)

    def _fail_waiting(self) -> None:
        for token in list(self._waiting):
            if not token.done():
                token.set_exception(
                    ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "This node does not take part in the quorum at present.")
                )

    # Snapshots

    def on_snapshot_written(self, snapshot_id: SnapshotId) -> None:
        """This node wrote one of its own, and may have removed segments behind it."""
        if self._stopped:
            return
        self.step(SnapshotTaken(OffsetEpoch(*snapshot_id)))
        start = self._log.start
        if start.offset > self.node.log_start_offset:
            self.step(LogStartMoved(start))

    def _write_snapshot_part(self, part: WriteSnapshotPart) -> None:
        if self._download is None or self._download.snapshot_id != part.snapshot_id:
            if self._download is not None:
                self._download.discard()
            self._download = SnapshotDownload(self._log.directory, part.snapshot_id, self._log.disk)
        self._download.write(part.position, part.payload)
        if part.position + len(part.payload) >= part.size:
            self._installing = asyncio.create_task(self._install(self._download), name="metadata snapshot")

    async def _install(self, download: SnapshotDownload) -> None:
        try:
            await asyncio.to_thread(download.complete)
        except StorageError as error:
            self._installing = self._download = None
            self._restart_core(error)
            self._tell()
            return
        self._installing = self._download = None
        if self._stopped:
            return
        try:
            self._log.start_from(download.file_id, download.snapshot)
            await self._log.flush()
        except StorageError as error:
            self._restart_core(error)
            self._tell()
            return
        self._follower.on_snapshot_installed(download)
        self.step(download.installed())


class _Written:
    """The payload of a batch that is in the log already."""


_WRITTEN: Final = _Written()
