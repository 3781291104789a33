"""With several log directories the broker decides where a replica is kept, and tells the controller (KIP-858).

A new replica is told of once it is there. One that moves to another directory is told of before it changes: should
the node fail in between, the metadata says which of the two copies counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final

from broker.controller_channel import ControllerChannel
from broker.lifecycle import BrokerLifecycle
from controller.record_versions import DIRECTORY_ASSIGNMENT_LEVEL
from protocol.errors import ApiError, ErrorCode
from protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
    PartitionData,
    TopicData,
)
from protocol.uuids import Uuid

if TYPE_CHECKING:
    from controller.controller import Controller

log = logging.getLogger(__name__)

MAX_REPLICAS_PER_REQUEST: Final = 2250  # Kafka's; with ten directories that is a request of 64 KB
TIMEOUT_MS: Final = 30_000
STOP_S: Final = 5.0
"""How long a stop waits for a request under way."""
RETRY_S: Final = 0.5
"""After an error of the controller that may pass."""

Replica = tuple[Uuid, int]
"""Topic id and partition."""


class DirectoryAssignment:
    """What the controller is still to be told; one request at a time, so that the last word on a replica counts."""

    def __init__(self, lifecycle: BrokerLifecycle, controller: Controller, channel: ControllerChannel) -> None:
        self.on_assigned: Callable[[Replica, Uuid], None] | None = None
        """Called when the controller has recorded a replica in a directory."""
        self._lifecycle = lifecycle
        self._controller = controller
        self._channel = channel
        self._wanted: dict[Replica, Uuid] = {}
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def assign(self, replica: Replica, directory_id: Uuid) -> None:
        """The replica is in this directory, or is about to be. Told as soon as the broker is unfenced."""
        self._wanted[replica] = directory_id
        self.maybe_tell()

    def maybe_tell(self) -> None:
        if self._wanted and self._task is None and not self._lifecycle.is_fenced and not self._stopping.is_set():
            self._task = asyncio.get_running_loop().create_task(self._tell(), name="directory assignment")

    async def _tell(self) -> None:
        try:
            while self._wanted and not self._stopping.is_set():
                wanted = dict(islice(self._wanted.items(), MAX_REPLICAS_PER_REQUEST))
                for replica in wanted:
                    del self._wanted[replica]
                try:
                    await self._assign(wanted)
                except ApiError as error:
                    log.warning("the controller did not take the directories of replicas: %s; trying again", error)
                    self._wanted = {**wanted, **self._wanted}
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(RETRY_S):
                            await self._stopping.wait()
        finally:
            self._task = None

    async def _assign(self, wanted: Mapping[Replica, Uuid]) -> None:
        if self._controller.image.features.metadata_version < DIRECTORY_ASSIGNMENT_LEVEL:
            for replica, directory_id in wanted.items():  # a cluster of an older release keeps no directories
                self._told(replica, directory_id)
            return
        request = self._request(wanted)
        response = await self._channel.ask(
            request,
            lambda: self._controller.on_assign_replicas_to_directories(request),
            timeout_ms=TIMEOUT_MS,
            lane="assignment",
        )
        assert isinstance(response, AssignReplicasToDirsResponse)
        if response.error_code != ErrorCode.NONE:
            raise ApiError(ErrorCode(response.error_code))
        for directory in response.directories:
            for topic in directory.topics:
                for part in topic.partitions:
                    if part.error_code == ErrorCode.NONE:
                        self._told((topic.topic_id, part.partition_index), directory.id)
                    else:  # the topic was deleted, or the replica taken away: the metadata will say so
                        error = ErrorCode(part.error_code).name
                        log.info(
                            "the controller knows no replica %s-%d: %s", topic.topic_id, part.partition_index, error
                        )

    def _told(self, replica: Replica, directory_id: Uuid) -> None:
        if self.on_assigned is not None:
            self.on_assigned(replica, directory_id)

    def _request(self, wanted: Mapping[Replica, Uuid]) -> AssignReplicasToDirsRequest:
        directories: dict[Uuid, dict[Uuid, list[int]]] = defaultdict(lambda: defaultdict(list))
        for (topic_id, partition), directory_id in wanted.items():
            directories[directory_id][topic_id].append(partition)
        return AssignReplicasToDirsRequest(
            broker_id=self._controller.controller_id,
            broker_epoch=self._lifecycle.epoch,
            directories=[
                DirectoryData(
                    id=directory_id,
                    topics=[
                        TopicData(
                            topic_id=topic_id,
                            partitions=[PartitionData(partition_index=index) for index in indexes],
                        )
                        for topic_id, indexes in topics.items()
                    ],
                )
                for directory_id, topics in directories.items()
            ],
        )

    async def stop(self) -> None:
        """Not for ever: without a controller the answer will not come, and the next start makes the loss good."""
        self._stopping.set()
        task = self._task
        if task is not None:
            _, pending = await asyncio.wait({task}, timeout=STOP_S)
            for one in pending:
                one.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await one
