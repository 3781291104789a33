"""The controller of a node: it follows the metadata quorum, and decides on changes while this node leads it.

Every change goes the same way. A state machine computes records from the image *as appended* (changes under way
included, so two requests cannot both create a topic), they are appended as one batch and offered to the quorum, and
when the high watermark has passed over them, the new image is published to the subscribers and the caller gets its
answer. Readers never see what is not committed. A leader that is deposed forgets what it appended: those who wait hear
NOT_CONTROLLER, and whether their change survives is for the next leader's log to say.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple, TypeVar

from config.broker import BrokerConfig
from controller import brokers, quorum_view
from controller.changes import ClusterChanges
from controller.delta import MetadataError, apply_records
from controller.driver import RaftDriver
from controller.endpoints import controller_endpoints
from controller.heartbeats import BrokerHeartbeats
from controller.image import RESOURCE_BROKER, Endpoint, ImageDelta, MetadataImage
from controller.loading import load
from controller.maintenance import Maintenance
from controller.metadata_log import MetadataLog
from controller.outcome import Outcome
from controller.probes import BrokerProbes
from controller.published import Listener, PublishedMetadata
from controller.raft.types import NOBODY, Batch, LeaderAndEpoch, NotLeader, RaftError
from controller.raft_calls import NoPeers, Peers
from controller.raft_service import RaftService
from controller.snapshot_download import SnapshotDownload
from controller.snapshots import Snapshotter
from controller.storage_format import NodeDirectories
from controller.topic_changes import TopicChanges
from controller.voters import raft_endpoints, static_voters
from protocol.errors import ApiError, ErrorCode
from protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from protocol.metadata.abort_transaction_record import AbortTransactionRecord
from protocol.schema import Message
from protocol.uuids import Uuid
from storage.disk import DISK, Disk
from storage.errors import StorageError
from storage.log import wall_clock_ms
from storage.log_directory import LogDirectory

_log = logging.getLogger(__name__)

R = TypeVar("R")

# Kafka's limit of records that a user's request may cause: they are one batch, and hold up everything behind them.
# What a broker that comes or goes causes is as much as it has partitions, and must be possible: there the limit is the
# size of a batch, MAX_BATCH_BYTES, with room for some 100,000 of them.
MAX_RECORDS_PER_REQUEST: Final = 10_000

READ_AGAIN_S: Final = 1.0  # after the committed log could not be read


class _Pending(NamedTuple):
    """Appended by this node as leader, not yet committed."""

    image: MetadataImage
    delta: ImageDelta
    config: BrokerConfig


class Controller(ClusterChanges, TopicChanges):
    def __init__(
        self,
        config: BrokerConfig,
        node: NodeDirectories,
        *,
        disk: Disk = DISK,
        clock: Callable[[], int] = wall_clock_ms,
        random: Random | None = None,
        log_dir: LogDirectory | None = None,
        peers: Peers | None = None,
        endpoints: list[Endpoint] | None = None,
    ) -> None:
        """``endpoints`` default to the configured ones; a server that listens on port 0 passes what it got."""
        self.node = node
        self.incarnation_id = Uuid.random()
        self.endpoints = controller_endpoints(config) if endpoints is None else endpoints
        self.heartbeats = BrokerHeartbeats(config.broker_session_timeout_ms, config.broker_heartbeat_interval_ms)
        self.probes = BrokerProbes(self, config.inter_broker_listener_name)
        self.log = MetadataLog(node, config, disk=disk, clock=clock, log_dir=log_dir)
        self.published = PublishedMetadata(config, self.log)
        self._config = config
        self._clock = clock
        self.random = random or Random()
        self._peers = peers or NoPeers()
        self._driver: RaftDriver | None = None
        self._leadership = LeaderAndEpoch(NOBODY, 0)
        self._previous_leader = NOBODY
        self._appended = self.published.image
        self._appended_config = config
        self._pending: deque[_Pending] = deque()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._active = False
        self._applying = False
        self._storage_error: StorageError | None = None
        self._snapshotter = Snapshotter(self.log, config, clock=clock, published=self.published)
        self._maintenance = Maintenance(self, config)
        self._changed: asyncio.Future[None] | None = None

    # Life

    async def start(self) -> None:
        """Recover and take part in the quorum; a quorum of this node alone has elected it when this returns."""
        loop = asyncio.get_running_loop()
        self.fault: asyncio.Future[None] = loop.create_future()
        """Fails with a MetadataError when the log holds what this node cannot apply: it must not go on guessing."""
        self.fault.add_done_callback(_retrieve)
        image, next_offset = await asyncio.to_thread(load, self.log)
        self.published.start_from(image, next_offset)
        self._driver = RaftDriver(
            self._config,
            self.log,
            self,
            peers=self._peers,
            random=self.random,
            endpoints=raft_endpoints(self.endpoints),
            static_voters=static_voters(self._config),
        )
        self._snapshotter.on_written = self._driver.on_snapshot_written
        self._driver.start()
        self._snapshotter.start()
        if self.is_alone:
            await self.wait_until(lambda: self._active and not self._pending)

    @property
    def raft(self) -> RaftDriver:
        assert self._driver is not None, "the controller was not started"
        return self._driver

    @property
    def leader_address(self) -> tuple[str, int] | None:
        """Where the leader of the quorum is reached; None while none is known, or while it is this node."""
        leader_id = self._leadership.leader_id
        if self._driver is None or leader_id in (NOBODY, self.node.node_id):
            return None
        return self._driver.address_of(leader_id)

    @property
    def is_alone(self) -> bool:
        """Whether this node is the only voter: it elects itself at once, and nobody can depose it."""
        node = self.raft.node
        return node.is_voter and len(node.voters) == 1

    async def wait_until(self, condition: Callable[[], bool], timeout_s: float | None = None) -> None:
        """Return when ``condition`` holds of the image or the leadership; it is asked whenever one of them changes.

        Raises MetadataError when this node can follow no longer, TimeoutError.
        """
        async with asyncio.timeout(timeout_s):
            while not condition():
                if self._storage_error is not None:
                    raise _unwritable(self._storage_error)
                if self._changed is None:
                    self._changed = asyncio.get_running_loop().create_future()
                await asyncio.wait({self._changed, self.fault}, return_when=asyncio.FIRST_COMPLETED)
                if self.fault.done():
                    self.fault.result()

    def _wake(self) -> None:
        changed, self._changed = self._changed, None
        if changed is not None and not changed.done():
            changed.set_result(None)

    def resign(self) -> None:
        """Let another node lead, before this one stops."""
        if self._driver is not None and not self.is_alone:
            self._driver.resign()

    async def shutdown(self) -> None:
        """Close the log. Safe to call after a start that failed."""
        await self._snapshotter.stop()
        self._deactivate()
        if self._driver is not None:
            await self._driver.resign_before_stop()
            await self._driver.stop()
        self._leadership = LeaderAndEpoch(NOBODY, self._leadership.epoch)
        await self.log.close()

    # What others ask about

    @property
    def image(self) -> MetadataImage:  # type: ignore[override]  # the mixins only read it
        """The latest committed image."""
        return self.published.image

    @property
    def effective_config(self) -> BrokerConfig:
        return self.published.effective_config

    def subscribe(self, listener: Listener) -> None:
        self.published.subscribe(listener)

    @property
    def cluster_id(self) -> str:
        return self.node.cluster_id

    @property
    def is_active(self) -> bool:
        """Whether this node leads the quorum and has committed in its epoch; only then does it accept changes."""
        return self._active

    @property
    def leader_id(self) -> int:
        return self._leadership.leader_id

    @property
    def leader_epoch(self) -> int:
        return self._leadership.epoch

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def kraft_version(self) -> int:
        return self.raft.node.kraft_version

    @property
    def appended_config(self) -> BrokerConfig:
        """The configuration under the image as appended, by which changes are decided."""
        return self._appended_config

    def upgrade_kraft_version(self, level: int, validate_only: bool) -> None:
        """From static voters to those of the log is a step that this version cannot take in a running quorum."""
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"kraft.version is {self.kraft_version} and cannot be changed; format the controllers with --standalone or "
            "--initial-controllers for a quorum whose voters can change.",
        )

    def monotonic_ms(self) -> int:
        """For sessions and intervals: a clock that nobody sets."""
        return int(asyncio.get_running_loop().time() * 1000)

    @property
    def controller_id(self) -> int:
        return self.node.node_id

    @property
    def voter_ids(self) -> frozenset[int]:
        return frozenset(voter.key.id for voter in self.raft.node.voters)

    @property
    def next_offset(self) -> int:
        """Where the next record goes; the epoch of a broker that registers now."""
        return self.log.log_end_offset

    async def serve_raft(self, request: Message, listener: str) -> Message:
        """The quorum's own RPCs, of its members and of administrators."""
        return await RaftService(self.raft, self.log).serve(request, listener)

    def describe_quorum(self, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        """Raises ApiError on a node that does not lead."""
        if not self.raft.node.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return quorum_view.describe_quorum(request, self.raft, self._clock())

    # What the quorum decided

    def on_progress(self, leadership: LeaderAndEpoch, high_watermark: int) -> None:
        leads = leadership.leader_id == self.node.node_id and leadership.is_ready
        if self._active and (not leads or leadership.epoch != self._leadership.epoch):
            self._deactivate()
        self._leadership = leadership
        if leadership.leader_id not in (NOBODY, self.node.node_id):
            self._previous_leader = leadership.leader_id
        if self._active:
            self._publish_pending(high_watermark)
        else:
            self._apply()
        self._wake()

    def on_snapshot_installed(self, download: SnapshotDownload) -> None:
        self.published.replace(download.image)
        self._wake()

    def on_disk_failed(self, error: StorageError) -> None:
        self._storage_error = error
        self._leadership = LeaderAndEpoch(NOBODY, self._leadership.epoch)
        self._deactivate()
        self._wake()

    def on_contradiction(self, error: RaftError) -> None:
        _log.critical("This node leaves the metadata quorum, whose messages contradict what it knows: %s", error)
        self._leadership = LeaderAndEpoch(NOBODY, self._leadership.epoch)
        self._deactivate()
        if not self.fault.done():
            self.fault.set_exception(MetadataError(str(error)))
        self._wake()

    def _apply(self) -> None:
        """One piece of what is committed; the rest in later turns of the loop, so that peers get answers meanwhile."""
        if self._applying or self.fault.done() or self._driver is None:
            return
        try:
            if self.published.next_offset < self.log.high_watermark and self.published.apply_committed():
                self._applying = True
                asyncio.get_running_loop().call_soon(self._go_on_applying)
                return
            self._snapshotter.on_progress()
            self._maybe_activate()
        except MetadataError as error:
            _log.critical("This node stops following the metadata: %s", error)
            self.fault.set_exception(error)
        except StorageError as error:  # out of descriptors, say: a disk that broke ends the driver's work as well
            _log.error("The committed metadata cannot be read now: %s", error)
            self._applying = True
            asyncio.get_running_loop().call_later(READ_AGAIN_S, self._go_on_applying)
        self._wake()

    def _go_on_applying(self) -> None:
        self._applying = False
        if not self._active and self.log.is_open:
            self._apply()

    # Leading

    def _maybe_activate(self) -> None:
        if self._active or self._leadership.leader_id != self.node.node_id or not self._leadership.is_ready:
            return
        self._active = True
        self._forget_pending()
        self._appended, self._appended_config = self.image, self.effective_config
        self.heartbeats.activate(self.image, self.monotonic_ms())
        own = self.image.brokers.get(self.node.node_id)
        if own is not None and own.incarnation_id != self.incarnation_id:
            self.heartbeats.end_session(own.id, own.epoch)  # of the process that had this directory before
        _log.info("This node is the active controller in epoch %d", self._leadership.epoch)
        self._maintenance.start()
        self.probes.suspect(self._previous_leader)  # it may have stopped leading because it died, the broker with it
        try:
            if self.published.in_transaction:
                self._append([AbortTransactionRecord(reason="the controller that began it stopped before its end")])
            self._append(self._snapshotter.bootstrap_records(self._appended))
            registered = self._appended.controllers.get(self.node.node_id)
            if registered is None or registered.incarnation_id != self.incarnation_id:
                self._append(
                    brokers.register_controller(self._appended, self.node.node_id, self.incarnation_id, self.endpoints)
                )
        except ApiError as error:
            _log.error("This node cannot act as controller: %s", error)

    def _deactivate(self) -> None:
        """Deposed, or stopping: forget what was appended, and tell all who wait for it."""
        if not self._active:
            return
        self._active = False
        self._maintenance.stop()
        self.probes.stop()
        self._forget_pending()

    def _forget_pending(self) -> None:
        self._pending.clear()
        waiting, self._waiting = self._waiting, deque()
        for _, waiter in waiting:
            if not waiter.done():
                waiter.set_exception(self._refusal())

    def _publish_pending(self, high_watermark: int) -> None:
        while self._pending and self._pending[0].image.offset < high_watermark:
            change = self._pending.popleft()
            self.published.publish_own(change.image, change.delta, change.config)
        while self._waiting and self._waiting[0][0] < high_watermark:
            waiter = self._waiting.popleft()[1]
            if not waiter.done():
                waiter.set_result(None)
        self._snapshotter.on_progress()

    # The way of a change

    def _refusal(self) -> ApiError:
        if self._storage_error is not None:
            return _unwritable(self._storage_error)
        return ApiError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller.")

    def _check_active(self) -> None:
        if not self._active:
            raise self._refusal()

    async def _change(
        self,
        decide: Callable[[MetadataImage], Outcome[R]],
        timeout_ms: int | None = None,
        *,
        limit: int | None = MAX_RECORDS_PER_REQUEST,
    ) -> R:
        """Deciding and appending happen in one step of the loop, so changes are serialised without a lock."""
        self._check_active()
        if timeout_ms is not None and timeout_ms <= 0:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT)  # as in Kafka: too late before it was begun
        records, response = decide(self._appended)
        if limit is not None and len(records) > limit:
            raise ApiError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
        self._append(records)
        self._maintenance.on_contact()
        # Even an answer that changes nothing may rest on a change under way (TOPIC_ALREADY_EXISTS), and must not come
        # before that is committed.
        if self._pending:
            await self._committed(timeout_ms)
        return response

    def _append(self, records: list[Message]) -> None:
        """All of the records, or an error and nothing: they are tried on the image before the log sees them."""
        if not records:
            return
        epoch, base_offset, timestamp = self._leadership.epoch, self.log.log_end_offset, self._clock()
        end_offset = base_offset + len(records)
        image, delta = apply_records(self._appended, records, offset=end_offset - 1, epoch=epoch, timestamp=timestamp)
        level = self._appended.features.metadata_version or self._snapshotter.bootstrap_level
        data = self.log.encode(records, level, timestamp, epoch)
        config = self._appended_config
        if any(resource == RESOURCE_BROKER for resource, _ in delta.changed_configs):
            config = self.published.config_under(image)
        try:
            self.raft.propose(Batch(base_offset, end_offset, epoch, payload=data))
        except NotLeader as error:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller.") from error
        except StorageError as error:  # nothing was appended
            self._on_append_failed(error)
            raise _unwritable(error) from error
        # To take the batch was a step of the core, which may have ended with this node deposed: it had not heard of a
        # majority for too long, or the disk failed. Whoever waited was told then, and so must whoever asked now.
        if not self._active or self._leadership.epoch != epoch:
            raise self._refusal()
        # Nothing is committed before the next turn of the loop: it takes a sync, even in a quorum of one.
        self._appended, self._appended_config = image, config
        self._pending.append(_Pending(image, delta, config))
        self.heartbeats.on_appended(image, delta)
        self._maintenance.on_appended()

    def _on_append_failed(self, error: StorageError) -> None:
        """A full disk refuses this change. Another voter may have room; a quorum of one has nobody to ask."""
        if not self.is_alone and self._active:
            _log.error("This node gives up leading the metadata quorum: %s", error)
            asyncio.get_running_loop().call_soon(self.resign)

    async def _committed(self, timeout_ms: int | None) -> None:
        """Wait until all that is appended now is committed and published.

        That goes on when the caller's time is up or the caller is gone: what is appended may be committed, and then
        readers will see it.
        """
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter.add_done_callback(_retrieve)
        self._waiting.append((self._appended.offset, waiter))
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                await asyncio.shield(waiter)
        except TimeoutError:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT) from None

    def change_unasked(self, decide: Callable[[MetadataImage], Outcome[R]]) -> R | None:
        """A change of the controller's own accord: nobody waits for it. None if it could not be appended now."""
        if not self._active:
            return None
        try:
            records, response = decide(self._appended)
            self._append(records)
            return response
        except ApiError as error:
            _log.warning("A change of the controller's own could not be made: %s", error)
            return None


def _unwritable(error: StorageError) -> ApiError:
    return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"The metadata log cannot be written: {error}")


def _retrieve(future: asyncio.Future[None]) -> None:
    """Nobody may be waiting any more: take the error, which the next change meets again."""
    if not future.cancelled():
        future.exception()
