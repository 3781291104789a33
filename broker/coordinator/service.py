"""The group coordinator of this broker: which shard a group belongs to, and the life of the shards.

A shard exists for every partition of `__consumer_offsets` that this broker leads. It comes with leadership, reads its
log, and goes with leadership; a request for any other group hears NOT_COORDINATOR and asks FindCoordinator again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Awaitable, Callable
from typing import Protocol

from broker.auto_creation import creatable_topic
from broker.coordinator.group.config import GroupConfig
from broker.coordinator.group.core import GroupCoordinator
from broker.coordinator.partitioning import partition_for
from broker.coordinator.shard import Answer, Shard, Write
from broker.internal_topics import OFFSETS_TOPIC
from broker.replicas import ReplicaManager
from config.broker import BrokerConfig
from controller.image import ImageDelta, MetadataImage, PartitionImage
from protocol.compression import Compression
from protocol.errors import ApiError, ErrorCode
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

log = logging.getLogger("broker.coordinator")


class CreatesTopics(Protocol):
    """The controller, as far as the coordinator needs it."""

    def create_topics(self, request: CreateTopicsRequest, *, principal: str) -> Awaitable[CreateTopicsResponse]: ...


class GroupService:
    """Owned by the Broker. Its methods raise ApiError where no shard answers for a group."""

    def __init__(self, config: BrokerConfig, node_id: int, replicas: ReplicaManager, image: MetadataImage) -> None:
        self._config = config
        self._node_id = node_id
        self._replicas = replicas
        self._image = image
        self._shards: dict[int, Shard] = {}
        self._creating: asyncio.Task[None] | None = None
        self._stopped = False
        self._partitions = config.offsets_topic_num_partitions
        """How many partitions groups are spread over. Partitions added to the topic later do not count until the
        next start, as in Kafka: a group must not change its shard while its offsets stay behind."""
        self._open_all()

    # Where a group lives

    def partition_of(self, group_id: str) -> int:
        return partition_for(group_id, self._partitions)

    def leader_of(self, group_id: str) -> int | None:
        """The node that coordinates the group; None while there is none."""
        found = self._image.partition(OFFSETS_TOPIC, self.partition_of(group_id))
        return None if found is None or found.leader < 0 else found.leader

    def shard_of(self, group_id: str) -> Shard:
        if self._stopped:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        shard = self._shards.get(self.partition_of(group_id))
        if shard is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return shard

    def write(self, group_id: str, operation: Write) -> Answer:
        """Hands a request to the core of the group's shard; the answer comes as a future that may be done already."""
        return self.shard_of(group_id).write(operation)

    def ask(self, group_id: str, operation: Write) -> Answer:
        """The same for a request that mostly stores nothing: it is answered also while nothing could be committed."""
        return self.shard_of(group_id).ask(operation)

    def read(self, group_id: str, question: Callable[[GroupCoordinator], object]) -> Answer:
        """Asks the core of the group's shard; the answer comes when all that it is made of is committed."""
        return self.shard_of(group_id).read(question)

    def core_of(self, group_id: str) -> GroupCoordinator:
        """The core of the group's shard, for reads of what need not be committed."""
        return self.shard_of(group_id).core_or_raise

    def cores(self) -> list[GroupCoordinator]:
        """All cores of this broker; COORDINATOR_LOAD_IN_PROGRESS while one is missing."""
        if self._stopped:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return [shard.core_or_raise for _, shard in sorted(self._shards.items()) if not shard.closed]

    # The topic

    async def ensure_topic(self, controller: CreatesTopics, principal: str) -> bool:
        """Creates `__consumer_offsets` on its first use; whether it is there now. All who ask at once share one try."""
        if OFFSETS_TOPIC in self._image.topics_by_name:
            return True
        if self._creating is None:
            self._creating = asyncio.get_running_loop().create_task(self._create(controller, principal))
            self._creating.add_done_callback(self._on_created)
        await asyncio.wait((self._creating,))
        return OFFSETS_TOPIC in self._image.topics_by_name

    async def _create(self, controller: CreatesTopics, principal: str) -> None:
        topic = creatable_topic(OFFSETS_TOPIC, self._config)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=self._config.request_timeout_ms)
        response = await controller.create_topics(request, principal=principal)
        for result in response.topics:
            if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                log.error(
                    "%s cannot be created, so groups have no coordinator: %s (%s)",
                    OFFSETS_TOPIC,
                    result.error_message,
                    ErrorCode(result.error_code).name,
                )

    def _on_created(self, task: asyncio.Task[None]) -> None:
        self._creating = None
        if not task.cancelled() and task.exception() is not None:
            log.error("creating %s failed", OFFSETS_TOPIC, exc_info=task.exception())

    # The life of the shards

    def _open_all(self) -> None:
        topic = self._image.topics_by_name.get(OFFSETS_TOPIC)
        if topic is None:
            return
        self._partitions = len(topic.partitions)
        for index, partition in topic.partitions.items():
            self._apply(index, partition)

    def on_image(self, image: MetadataImage, delta: ImageDelta) -> None:
        """After the replica manager took the image over: opens and closes shards, and tells the others."""
        known = OFFSETS_TOPIC in self._image.topics_by_name
        self._image = image
        if self._stopped:
            return
        if any(topic.name == OFFSETS_TOPIC for topic in delta.deleted_topics):
            known = False
            for shard in self._shards.values():
                shard.close(ErrorCode.NOT_COORDINATOR)
            self._shards.clear()
        topic = image.topics_by_name.get(OFFSETS_TOPIC)
        before = list(self._shards.values())
        if topic is not None and OFFSETS_TOPIC in delta.changed_topics:
            if not known:
                self._partitions = len(topic.partitions)
            for index in delta.changed_partitions.get(OFFSETS_TOPIC, ()):
                self._apply(index, topic.partitions[index])
        for shard in before:
            if not shard.closed:
                shard.on_image(image, delta)

    def on_partition(self, topic: str, index: int) -> None:
        """A partition of this broker is here later than the metadata that told of it."""
        image = self._image.partition(topic, index)
        if topic == OFFSETS_TOPIC and image is not None and not self._stopped:
            self._apply(index, image)

    def on_config(self, config: BrokerConfig) -> None:
        self._config = config
        settings = GroupConfig.from_broker(config)
        for shard in self._shards.values():
            shard.on_config(settings)

    def _apply(self, index: int, image: PartitionImage) -> None:
        shard = self._shards.get(index)
        partition = self._replicas.partition_or_none(OFFSETS_TOPIC, index)
        leads = image.leader == self._node_id and partition is not None
        if shard is not None and not (leads and shard.partition is partition):
            shard.close(ErrorCode.NOT_COORDINATOR)
            del self._shards[index]
            shard = None
        if leads and shard is None and partition is not None:
            codec = Compression(self._config.offsets_topic_compression_codec)
            shard = self._shards[index] = Shard(
                partition, self._make_core, codec, self._config.offsets_commit_timeout_ms
            )
            shard.start()

    def _make_core(self) -> GroupCoordinator:
        return GroupCoordinator(GroupConfig.from_broker(self._config), self._image, random.Random(), _new_id)

    async def loaded(self) -> None:
        """Waits until every shard has read its log."""
        await asyncio.gather(*(shard.settle() for shard in self._shards.values()))

    def stop_accepting(self) -> None:
        """Lets members that wait in JoinGroup and SyncGroup go: they look for the next coordinator."""
        self._stopped = True
        for shard in self._shards.values():
            shard.close(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def shutdown(self) -> None:
        """Nothing of the coordinator runs after this, so the logs may be closed."""
        self.stop_accepting()
        if self._creating is not None:
            await asyncio.wait((self._creating,))
        await self.loaded()
        self._shards.clear()


def _new_id() -> str:
    return str(uuid.uuid4())
