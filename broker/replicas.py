"""The partitions this broker holds, kept in step with the metadata image."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from broker.partition import Partition
from broker.replication.cluster import ClusterView
from broker.replication.move import is_level
from broker.replication.mover import Assign, ReplicaMover, history_of
from broker.replication.service import ReplicationService
from config.broker import BrokerConfig
from config.topic import LogConfig
from controller.image import RESOURCE_TOPIC, ImageDelta, MetadataImage, PartitionImage, TopicImage
from protocol.errors import ApiError, ErrorCode
from protocol.uuids import DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Uuid
from storage.errors import StorageError
from storage.log import Log
from storage.log_directory import LogDirectory
from storage.log_manager import LogManager
from storage.log_names import MAX_NAME, future_name

log = logging.getLogger("broker.replicas")

_NO_DIRECTORY = (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING)

RETRY_S = 1.0
"""Until a log that could not be created is tried again: space on a full disk is freed by people or by retention."""


class ReplicaManager:
    """Owns every Partition. Handlers look partitions up here and talk to them, never to the log manager."""

    def __init__(
        self,
        config: BrokerConfig,
        node_id: int,
        logs: LogManager,
        replication: ReplicationService | None = None,
        assign: Assign = lambda replica, directory_id: None,
    ) -> None:
        """`assign` tells the controller in which directory a replica is, where the metadata does not say so."""
        self.config = config
        self._replication = replication
        self.node_id = node_id
        self.logs = logs
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[Uuid, int], Partition] = {}
        self._assign = assign
        self.mover = ReplicaMover(config, logs, assign)
        self._image: MetadataImage | None = None
        self._missing: set[tuple[str, int]] = set()
        """Replicas whose log could not be created in a directory that is online."""
        self._retried: set[tuple[str, int]] = set()
        self._retry: asyncio.TimerHandle | None = None
        self.on_late: Callable[[str, int], None] = lambda topic, index: None
        """Told of a partition that is here at last: the image that brought it was handed on before."""

    @property
    def _cluster(self) -> ClusterView | None:
        return None if self._replication is None else self._replication.cluster

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_name.values())

    def partition_or_none(self, topic: str, index: int) -> Partition | None:
        return self._by_name.get((topic, index))

    def partition(self, topic: str, index: int) -> Partition:
        """The partition, or the error that tells a client to refresh its metadata."""
        found = self._by_name.get((topic, index))
        if found is not None:
            return found
        image = self._image
        known = image.topics_by_name.get(topic) if image is not None else None
        raise self._absent(known, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def partition_by_id(self, topic_id: Uuid, index: int) -> Partition:
        found = self._by_id.get((topic_id, index))
        if found is not None:
            return found
        image = self._image
        known = image.topics_by_id.get(topic_id) if image is not None else None
        raise self._absent(known, index, ErrorCode.UNKNOWN_TOPIC_ID)

    def _absent(self, topic: TopicImage | None, index: int, unknown: ErrorCode) -> ApiError:
        """Why a partition is not here: no such topic, no such partition, another broker's, or a dead disk."""
        if topic is None:
            return ApiError(unknown)
        partition = topic.partitions.get(index)
        if partition is None:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if self.node_id in partition.replicas:
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def topic_name(self, topic_id: Uuid) -> str | None:
        image = self._image
        found = image.topics_by_id.get(topic_id) if image is not None else None
        return None if found is None else found.name

    def log_config(self, topic: str) -> LogConfig:
        assert self._image is not None
        return LogConfig.resolve(self._image.topic_configs(topic), self.config)

    def load(self, image: MetadataImage) -> None:
        """At start: a partition object for every replica of this node in the image."""
        self._image = image
        if self._replication is not None:
            self._replication.on_brokers(image)
        self._promote_futures(image)
        for topic in image.topics_by_name.values():
            self._apply_topic(topic)
        for stray in self.logs:  # the topic was deleted, or moved away, while this node was down
            held = image.topics_by_name.get(stray.topic)
            is_known = (stray.topic, stray.partition) in self._by_name or (
                # A copy on its way that is all there is, while the directory it comes from is offline.
                held is not None
                and self.logs.get(stray.topic, stray.partition) is None
                and held.topic_id == stray.topic_id
                and self._is_replica(held, stray.partition)
            )
            if not is_known and stray.log_dir.online:
                self._set_aside(stray)

    def _is_replica(self, topic: TopicImage, index: int) -> bool:
        partition = topic.partitions.get(index)
        return partition is not None and self.node_id in partition.replicas

    def _promote_futures(self, image: MetadataImage) -> None:
        """At start: a move that the controller had recorded, and that lacked nothing but the change of names.

        If the current log has more, the move goes on instead: it was written to until the end. A future log alone was
        on the point of taking over, unless the directory that it comes from is offline.
        """
        all_online = all(directory.online for directory in self.logs.directories)
        for future in [one for one in self.logs if one is self.logs.future(one.topic, one.partition)]:
            topic = image.topics_by_name.get(future.topic)
            if topic is None or future.topic_id != topic.topic_id or not self._is_replica(topic, future.partition):
                continue
            current = self.logs.get(future.topic, future.partition)
            if current is not None and current.topic_id != topic.topic_id:
                self._set_aside(current)
                current = None
            named = topic.partitions[future.partition].directory_of(self.node_id)
            is_named = named == future.log_dir.directory_id
            if current is None:
                ready = is_named or (all_online and named in _NO_DIRECTORY)
            else:
                ready = is_named and is_level(history_of(current), history_of(future))
            if ready:
                try:
                    self.logs.promote(future)
                    log.info("%s has moved to %s", future.name, future.log_dir.path)
                except StorageError as error:
                    log.error("%s", error)

    def on_image(self, image: MetadataImage, delta: ImageDelta) -> None:
        """Called by the controller's publication, before the change is answered to whoever asked for it."""
        self._image = image
        if delta.changed_brokers and self._replication is not None:
            self._replication.on_brokers(image)
        for gone in delta.deleted_topics:
            self._delete_topic(gone)
        for name in delta.changed_topics:
            topic = image.topics_by_name.get(name)
            if topic is not None:
                self._apply_topic(topic)
        if delta.changed_brokers:
            for partition in self._by_name.values():
                partition.on_cluster_change()
        for resource_type, name in delta.changed_configs:
            if resource_type == RESOURCE_TOPIC and name in image.topics_by_name:
                self._apply_config(image.topics_by_name[name])

    def on_broker_config(self, config: BrokerConfig) -> None:
        """Settings of the whole broker changed, and with them defaults of topic settings."""
        self.config = config
        if self._replication is not None:
            self._replication.on_config(config)
        self.mover.on_config(config)
        assert self._image is not None
        for topic in self._image.topics_by_name.values():
            self._apply_config(topic)

    def _apply_topic(self, topic: TopicImage) -> None:
        for index, image in topic.partitions.items():
            partition = self._by_name.get((topic.name, index))
            if self.node_id not in image.replicas:
                if partition is not None and partition.topic_id == topic.topic_id:
                    self._give_up(partition)
                continue
            if partition is not None and partition.image is image:
                continue
            try:
                if partition is None:
                    partition = self._open(topic, index, image)
                partition.on_image(image)
                if self._replication is not None:
                    self._replication.fetchers.on_partition(partition)
                directory_id = partition.log.log_dir.directory_id
                if image.directory_of(self.node_id) != directory_id and not self.mover.may_be_assigned(partition):
                    self._assign((topic.topic_id, index), directory_id)
            except StorageError as error:
                self._on_not_opened((topic.name, index), error)

    def _on_not_opened(self, key: tuple[str, int], error: StorageError) -> None:
        if key not in self._missing and key not in self._retried:
            log.error("partition %s-%d is offline: %s", *key, error)
        directory = None if error.directory is None else self.logs.directory_at(error.directory)
        if directory is not None and directory.online:  # otherwise a restart brings it back
            self._missing.add(key)
            if self._retry is None:
                self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._open_missing)

    def _open_missing(self) -> None:
        assert self._image is not None
        self._retry = None
        self._retried, self._missing = self._missing, set()
        for name in {name for name, _ in self._retried}:
            topic = self._image.topics_by_name.get(name)
            if topic is not None:
                self._apply_topic(topic)
        opened, self._retried = self._retried - self._missing, set()
        for key in sorted(opened & self._by_name.keys()):
            log.info("partition %s-%d is here now", *key)
            self.on_late(*key)

    async def stop(self) -> None:
        """Nothing is copied or created after this."""
        if self._retry is not None:
            self._retry.cancel()
        await self.mover.stop()

    def _open(self, topic: TopicImage, index: int, image: PartitionImage) -> Partition:
        found = self.logs.get(topic.name, index)
        if found is not None and not found.log_dir.online:
            raise found.log_dir.offline_error()
        if found is not None and found.topic_id == Uuid.ZERO:
            self.logs.assign_topic_id(found, topic.topic_id)
        elif found is not None and found.topic_id != topic.topic_id:  # of a deleted topic of the same name
            self._set_aside(found)
            found = None
        if found is None:
            named = image.directory_of(self.node_id)
            self._check_not_offline(named)
            found = self.logs.create(topic.name, index, topic.topic_id, self.log_config(topic.name), named)
        partition = Partition(topic.name, index, topic.topic_id, self.node_id, found, self._cluster)
        if self._replication is not None:
            self._replication.on_topic_config(found.config, [partition])
        self._by_name[topic.name, index] = partition
        self._by_id[topic.topic_id, index] = partition
        future = self.logs.future(topic.name, index)
        if future is not None:
            self._resume_move(partition, future, image)
        return partition

    def _resume_move(self, partition: Partition, future: Log, image: PartitionImage) -> None:
        try:
            if future.topic_id != partition.topic_id or future.log_dir is partition.log.log_dir:
                self.logs.delete(future)
            else:
                is_assigned = image.directory_of(self.node_id) == future.log_dir.directory_id
                self.mover.resume(partition, future, is_assigned=is_assigned)
        except StorageError as error:
            log.error("%s stays in %s: %s", partition, partition.log.log_dir.path, error)

    def _check_not_offline(self, directory_id: Uuid) -> None:
        """A replica whose disk is missing must not come back empty on another one."""
        if directory_id in _NO_DIRECTORY:
            return
        offline = [directory.path for directory in self.logs.directories if not directory.online]
        if offline and all(one.directory_id != directory_id for one in self.logs.directories if one.online):
            raise StorageError(f"its log directory is one of those offline ({', '.join(offline)})")

    def _set_aside(self, stray: Log) -> None:
        try:
            self.logs.set_aside(stray)
        except StorageError as error:
            log.error("%s", error)

    def on_directory_failure(self, directory: LogDirectory) -> None:
        """Its partitions answer KAFKA_STORAGE_ERROR from now on; those of other directories go on."""
        self.mover.on_directory_failure(directory)
        for partition in [one for one in self._by_name.values() if one.log.log_dir is directory]:
            self._forget(partition)

    def _forget(self, partition: Partition) -> None:
        del self._by_name[partition.topic, partition.index]
        self._by_id.pop((partition.topic_id, partition.index), None)
        self.mover.forget(partition)
        if self._replication is not None:
            self._replication.fetchers.remove(partition)
        partition.on_gone()

    def _delete_topic(self, topic: TopicImage) -> None:
        for index in topic.partitions:
            partition = self._by_name.get((topic.name, index))
            if partition is not None and partition.topic_id == topic.topic_id:
                self._give_up(partition)

    def _give_up(self, partition: Partition) -> None:
        """Deleted, or moved to other brokers: its records are theirs to keep."""
        self._forget(partition)
        for gone in (partition.log, self.logs.future(partition.topic, partition.index)):
            if gone is not None:
                try:
                    self.logs.delete(gone)
                except StorageError as error:
                    log.error("the log of %s could not be deleted: %s", partition, error)

    def _apply_config(self, topic: TopicImage) -> None:
        config = self.log_config(topic.name)
        partitions = [one for index in topic.partitions if (one := self._by_name.get((topic.name, index))) is not None]
        for partition in partitions:
            partition.log.update_config(config)
            future = self.logs.future(topic.name, partition.index)
            if future is not None:
                future.update_config(config)
            partition.on_cluster_change()
        if self._replication is not None:
            self._replication.on_topic_config(config, partitions)

    # --- moving replicas between log directories

    def alter_log_dir(self, topic: str, index: int, path: str) -> None:
        """Move a replica to the log directory `path`, or leave it there and cancel its move elsewhere.

        For a replica that is not here yet the wish is remembered until it is created, though the answer is an error:
        `kafka-reassign-partitions` asks before the partition has arrived. Raises ApiError, StorageError.
        """
        if len(future_name(topic, index)) > MAX_NAME:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        directory = next((one for one in self.logs.directories if one.path == path), None)
        if directory is None:
            raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"Log directory {path} is not one of this broker's.")
        if not directory.online:
            raise directory.offline_error()
        if self.config.is_cordoned(path):
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Log directory {path} is cordoned.")
        partition = self._by_name.get((topic, index))
        if partition is None:
            try:
                self.partition(topic, index)
            except ApiError as error:
                if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                    self.logs.preferred[topic, index] = directory
                if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE) from None
                raise
            return
        target = self.mover.target_of(partition)
        if target is not None and target is not directory:
            self.mover.cancel(partition)
        if partition.log.log_dir is not directory and target is not directory:
            self.mover.begin(partition, directory)
