"""The partitions this broker holds, kept in step with the metadata image."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from broker.partition import Partition
from broker.replication.cluster import ClusterView
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

log = logging.getLogger("broker.replicas")


class ReplicaManager:
    """Owns every Partition. Handlers look partitions up here and talk to them, never to the log manager."""

    def __init__(
        self, config: BrokerConfig, node_id: int, logs: LogManager, replication: ReplicationService | None = None
    ) -> None:
        self.config = config
        self._replication = replication
        self.node_id = node_id
        self.logs = logs
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[Uuid, int], Partition] = {}
        self.misplaced: dict[tuple[Uuid, int], Uuid] = {}
        """Replicas whose directory the metadata does not know yet: (topic id, partition) -> directory id."""
        self._image: MetadataImage | None = None

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
        for topic in image.topics_by_name.values():
            self._apply_topic(topic)
        for stray in self.logs:  # the topic was deleted, or moved away, while this node was down
            if (stray.topic, stray.partition) not in self._by_name and stray.log_dir.online:
                self._set_aside(stray)

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
                if image.directory_of(self.node_id) != directory_id:
                    self.misplaced[topic.topic_id, index] = directory_id
            except StorageError as error:
                log.error("partition %s-%d is offline: %s", topic.name, index, error)

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
            self._check_not_offline(image.directory_of(self.node_id))
            found = self.logs.create(topic.name, index, topic.topic_id, self.log_config(topic.name))
        partition = Partition(topic.name, index, topic.topic_id, self.node_id, found, self._cluster)
        if self._replication is not None:
            self._replication.on_topic_config(found.config, [partition])
        self._by_name[topic.name, index] = partition
        self._by_id[topic.topic_id, index] = partition
        return partition

    def _check_not_offline(self, directory_id: Uuid) -> None:
        """A replica whose disk is missing must not come back empty on another one."""
        if directory_id in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING):
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
        for partition in [one for one in self._by_name.values() if one.log.log_dir is directory]:
            self._forget(partition)

    def _forget(self, partition: Partition) -> None:
        del self._by_name[partition.topic, partition.index]
        self._by_id.pop((partition.topic_id, partition.index), None)
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
        try:
            self.logs.delete(partition.log)
        except StorageError as error:
            log.error("the log of %s could not be deleted: %s", partition, error)

    def _apply_config(self, topic: TopicImage) -> None:
        config = self.log_config(topic.name)
        partitions = [one for index in topic.partitions if (one := self._by_name.get((topic.name, index))) is not None]
        for partition in partitions:
            partition.log.update_config(config)
            partition.on_cluster_change()
        if self._replication is not None:
            self._replication.on_topic_config(config, partitions)
