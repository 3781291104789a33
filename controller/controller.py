"""The controller: decides on changes of the metadata, stores them, and hands out images.

Every change goes the same way. A state machine computes records from the image *as appended* (changes under way
included, so two requests cannot both create a topic), they are appended as one batch, the batch is synced off the
loop (concurrent requests share one sync), the new image is published to the subscribers, and then the caller gets
its answer. Readers never see what is not durable.

There is one voter, this node. The interface is that of any controller: callers must expect NOT_CONTROLLER.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple, TypeVar

from config.broker import BrokerConfig
from config.errors import ConfigError
from controller import brokers, configs, partitions, producer_ids, quorum_view, refusals, topics
from controller.brokers import UNKNOWN_EPOCH, Registration
from controller.changes import ClusterChanges
from controller.delta import apply_records
from controller.endpoints import broker_endpoints, controller_endpoints
from controller.features import KRAFT_VERSION
from controller.heartbeats import BrokerHeartbeats
from controller.image import EMPTY_IMAGE, RESOURCE_BROKER, Endpoint, ImageDelta, MetadataImage
from controller.loading import load, voters_with_this_node
from controller.metadata_log import MetadataLog
from controller.outcome import Outcome
from controller.producer_ids import ProducerIdBlock
from controller.snapshots import Snapshotter
from controller.storage_format import NodeDirectories
from protocol.errors import ApiError, ErrorCode
from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.schema import Message
from protocol.uuids import Uuid
from storage.disk import DISK, Disk
from storage.errors import StorageError
from storage.log import wall_clock_ms
from storage.log_directory import LogDirectory

_log = logging.getLogger(__name__)

R = TypeVar("R")
Listener = Callable[[MetadataImage, ImageDelta], None]


# Kafka's limit of records that one request may cause: they are one batch, and hold up everything behind them.
MAX_RECORDS_PER_REQUEST: Final = 10_000


class _Pending(NamedTuple):
    """Appended, not yet known to be durable."""

    image: MetadataImage
    delta: ImageDelta
    config: BrokerConfig


class Controller(ClusterChanges):
    def __init__(
        self,
        config: BrokerConfig,
        node: NodeDirectories,
        *,
        disk: Disk = DISK,
        clock: Callable[[], int] = wall_clock_ms,
        random: Random | None = None,
        log_dir: LogDirectory | None = None,
    ) -> None:
        self.node = node
        self.image = EMPTY_IMAGE
        """The latest durable image."""
        self.incarnation_id = Uuid.random()
        self._config = config
        self._effective_config = config
        self._appended_config = config
        self.heartbeats = BrokerHeartbeats(config.broker_session_timeout_ms)
        self._clock = clock
        self._random = random or Random()
        self._log = MetadataLog(node, config, disk=disk, clock=clock, log_dir=log_dir)
        self._appended = EMPTY_IMAGE
        self._pending: deque[_Pending] = deque()
        self._listeners: list[Listener] = []
        self._active = False
        self._storage_error: StorageError | None = None
        self._snapshotter = Snapshotter(self._log, config, clock=clock, current_image=lambda: self.image)

    # Life

    async def start(self) -> None:
        """Recover, replay, lead a new epoch, and register as controller; in a new cluster, bootstrap it."""
        self.image, abort = await asyncio.to_thread(load, self._log)
        self._appended = self.image
        self._effective_config = self._appended_config = self._config_under(self.image)
        voters = voters_with_this_node(self._log, controller_endpoints(self._config))
        self._log.become_leader(voters)
        self._active = True
        if abort is not None:
            self._append([abort])
        bootstrap = self._snapshotter.bootstrap_records(self._appended)
        if bootstrap:
            self._append(bootstrap)
        self._append(
            brokers.register_controller(
                self._appended, self.node.node_id, self.incarnation_id, controller_endpoints(self._config)
            )
        )
        await self._commit()
        self._snapshotter.start()

    async def register_broker(
        self,
        *,
        endpoints: Sequence[Endpoint] | None = None,
        directories: Sequence[Uuid] | None = None,
        previous_epoch: int = UNKNOWN_EPOCH,
    ) -> int:
        """Register this node as a (fenced) broker and return its epoch.

        ``endpoints`` default to the configured ones; a server that listens on port 0 passes what it got.
        ``previous_epoch`` comes from the clean shutdown file; -1 says that the last stop was not clean.
        """
        registration = Registration(
            broker_id=self.node.node_id,
            incarnation_id=self.incarnation_id,
            endpoints=broker_endpoints(self._config) if endpoints is None else endpoints,
            directories=list(self.node.directory_ids.values()) if directories is None else directories,
            rack=self._config.broker_rack,
            previous_epoch=previous_epoch,
        )
        self._check_active()
        self._append(
            brokers.register_broker(self._appended, self._appended_config, registration, self._log.log_end_offset)
        )
        await self._commit()
        return self.broker_epoch

    async def unfence_broker(self) -> None:
        """This node's broker is ready: it may lead partitions and be told to clients."""
        self._check_active()
        self._append(brokers.unfence_broker(self._appended, self._appended_config, self.node.node_id))
        await self._commit()

    async def begin_controlled_shutdown(self) -> None:
        """Give up leadership before the network closes. Does nothing on a node that is not registered."""
        self._check_active()
        self._append(brokers.begin_controlled_shutdown(self._appended, self._appended_config, self.node.node_id))
        await self._commit()

    async def shutdown(self) -> None:
        """Fence this node's broker, and close the log. Safe to call after a start that failed."""
        await self._snapshotter.stop()
        try:
            if self._active and self._storage_error is None:
                await self.begin_controlled_shutdown()
                broker = self._appended.brokers.get(self.node.node_id)
                if broker is not None and not broker.fenced:
                    self._append(brokers.fence_broker(self._appended, self._appended_config, broker.id))
                    await self._commit()
        except (ApiError, StorageError) as error:
            _log.error("The broker could not be fenced at shutdown: %s", error)
        finally:
            self._active = False
            await self._log.close()

    # What others ask about

    @property
    def cluster_id(self) -> str:
        return self.node.cluster_id

    @property
    def is_active(self) -> bool:
        """Whether this node leads the quorum; only then does it accept changes."""
        return self._active

    @property
    def leader_id(self) -> int:
        return self.node.node_id if self._active else -1

    @property
    def leader_epoch(self) -> int:
        return self._log.epoch

    @property
    def high_watermark(self) -> int:
        return self._log.high_watermark

    @property
    def broker_epoch(self) -> int:
        """The epoch of this node's registration, -1 before it has one."""
        broker = self._appended.brokers.get(self.node.node_id)
        return UNKNOWN_EPOCH if broker is None else broker.epoch

    @property
    def effective_config(self) -> BrokerConfig:
        """The static configuration under the dynamic one of the image."""
        return self._effective_config

    @property
    def appended_config(self) -> BrokerConfig:
        """As ``effective_config``, under the image as appended: decisions are made with it."""
        return self._appended_config

    @property
    def controller_id(self) -> int:
        return self.node.node_id

    @property
    def next_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def voter_ids(self) -> tuple[int, ...]:
        return (self.node.node_id,)

    @property
    def kraft_version(self) -> int:
        return KRAFT_VERSION

    def upgrade_kraft_version(self, level: int, validate_only: bool) -> None:
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"kraft.version is {KRAFT_VERSION} already.")

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def subscribe(self, listener: Listener) -> None:
        """Call ``listener`` with every new image, in order, on the loop, before the change is answered.

        A listener must not block; what it raises is logged and does not undo the change.
        """
        self._listeners.append(listener)

    def describe_quorum(self, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        self._check_active()
        voters = voters_with_this_node(self._log, controller_endpoints(self._config))
        return quorum_view.describe_quorum(request, self._log, voters, self._clock())

    # Changes

    async def create_topics(
        self, request: CreateTopicsRequest, *, principal: str = "User:ANONYMOUS"
    ) -> CreateTopicsResponse:
        def decide(image: MetadataImage) -> Outcome[CreateTopicsResponse]:
            return topics.create_topics(image, request, config=self._appended_config, random=self._random)

        try:
            return await self._change(decide, request.timeout_ms)
        except ApiError as error:
            return refusals.refuse_create_topics(request, error)

    async def delete_topics(
        self, request: DeleteTopicsRequest, *, principal: str = "User:ANONYMOUS", api_version: int = 6
    ) -> DeleteTopicsResponse:
        def decide(image: MetadataImage) -> Outcome[DeleteTopicsResponse]:
            return topics.delete_topics(image, request, config=self._appended_config, api_version=api_version)

        try:
            return await self._change(decide, request.timeout_ms)
        except ApiError as error:
            return refusals.refuse_delete_topics(request, error)

    async def create_partitions(
        self, request: CreatePartitionsRequest, *, principal: str = "User:ANONYMOUS"
    ) -> CreatePartitionsResponse:
        def decide(image: MetadataImage) -> Outcome[CreatePartitionsResponse]:
            return partitions.create_partitions(image, request, random=self._random)

        try:
            return await self._change(decide, request.timeout_ms)
        except ApiError as error:
            return refusals.refuse_create_partitions(request, error)

    async def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest, *, principal: str = "User:ANONYMOUS"
    ) -> IncrementalAlterConfigsResponse:
        def decide(image: MetadataImage) -> Outcome[IncrementalAlterConfigsResponse]:
            return configs.incremental_alter_configs(image, request, config=self._appended_config)

        try:
            return await self._change(decide)
        except ApiError as error:
            return refusals.refuse_incremental_alter_configs(request, error)

    async def alter_configs(
        self, request: AlterConfigsRequest, *, principal: str = "User:ANONYMOUS"
    ) -> AlterConfigsResponse:
        def decide(image: MetadataImage) -> Outcome[AlterConfigsResponse]:
            return configs.alter_configs(image, request, config=self._appended_config)

        try:
            return await self._change(decide)
        except ApiError as error:
            return refusals.refuse_alter_configs(request, error)

    async def allocate_producer_ids(self) -> ProducerIdBlock:
        """A block of producer ids for this node's broker, never given out before. Raises ApiError."""
        return await self._change(
            lambda image: producer_ids.allocate_block(image, self.node.node_id, self.broker_epoch)
        )

    async def assign_directories(self, assignments: Mapping[tuple[Uuid, int], Uuid]) -> None:
        """Record in which log directory this node put its replicas: (topic id, partition) -> directory id.

        Needed when there are several log directories; with one, the controller knows it from the start.
        """
        await self._change(lambda image: partitions.assign_directories(image, self.node.node_id, assignments))

    # The way of a change

    def _check_active(self) -> None:
        if self._storage_error is not None:
            raise _unwritable(self._storage_error)
        if not self._active:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "This node is not the active controller.")

    async def _change(self, decide: Callable[[MetadataImage], Outcome[R]], timeout_ms: int | None = None) -> R:
        """Deciding and appending happen in one step of the loop, so changes are serialised without a lock."""
        self._check_active()
        if timeout_ms is not None and timeout_ms <= 0:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT)  # as in Kafka: too late before it was begun
        records, response = decide(self._appended)
        if len(records) > MAX_RECORDS_PER_REQUEST:
            raise ApiError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")
        self._append(records)
        # Even an answer that changes nothing may rest on a change under way (TOPIC_ALREADY_EXISTS), and must not come
        # before that is durable.
        if self._pending:
            await self._commit(timeout_ms)
        return response

    def _append(self, records: list[Message]) -> None:
        """All of the records, or an error and nothing: they are tried on the image before the log sees them."""
        if not records:
            return
        offset, timestamp = self._log.log_end_offset + len(records) - 1, self._clock()
        image, delta = apply_records(self._appended, records, offset=offset, epoch=self._log.epoch, timestamp=timestamp)
        level = self._appended.features.metadata_version or self._snapshotter.bootstrap_level
        try:
            self._log.append(records, level, timestamp)
        except StorageError as error:  # nothing was appended: a full disk refuses this change and no more
            raise _unwritable(error) from error
        if any(resource == RESOURCE_BROKER for resource, _ in delta.changed_configs):
            self._appended_config = self._config_under(image)
        self._appended = image
        self.heartbeats.on_appended(image, delta)
        self._pending.append(_Pending(image, delta, self._appended_config))

    async def _commit(self, timeout_ms: int | None = None) -> None:
        """Wait until all that is appended now is durable and published.

        That goes on when the caller's time is up or the caller is gone: what is appended will be there, and readers
        will see it.
        """
        commit = asyncio.ensure_future(self._sync_and_publish())
        commit.add_done_callback(_retrieve)
        try:
            await asyncio.wait_for(asyncio.shield(commit), None if timeout_ms is None else timeout_ms / 1000)
        except TimeoutError:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT) from None

    async def _sync_and_publish(self) -> None:
        wanted = self._appended.offset
        try:
            await self._log.flush()
        except StorageError as error:
            # What the disk holds is unknown now; only a restart, which reads it, can tell.
            self._storage_error = error
            raise _unwritable(error) from error
        while self._pending and self._pending[0].image.offset <= wanted:
            self._publish(self._pending.popleft())
        self._snapshotter.on_progress()

    def _publish(self, change: _Pending) -> None:
        self.image, self._effective_config = change.image, change.config
        for listener in self._listeners:
            try:
                listener(change.image, change.delta)
            except Exception:
                _log.exception("A subscriber failed to apply the metadata at offset %d", change.image.offset)

    def _config_under(self, image: MetadataImage) -> BrokerConfig:
        try:
            return self._config.with_dynamic(
                dynamic_broker=image.broker_configs(self.node.node_id),
                dynamic_default=image.default_broker_configs,
            )
        except ConfigError as error:
            _log.warning("The dynamic configuration is left aside, because it cannot be applied: %s", error)
            return self._config


def _unwritable(error: StorageError) -> ApiError:
    return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"The metadata log cannot be written: {error}")


def _retrieve(commit: asyncio.Future[None]) -> None:
    """Nobody may be waiting any more: take the error, which the next change meets again."""
    if not commit.cancelled():
        commit.exception()
