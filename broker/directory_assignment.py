"""With several log directories the broker chooses one for a new replica, and the controller learns of it afterwards."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from broker.controller_channel import ControllerChannel
from broker.lifecycle import BrokerLifecycle
from broker.replicas import ReplicaManager
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

TIMEOUT_MS: Final = 30_000


class DirectoryAssignment:
    """Takes what the replica manager has misplaced; one request at a time. A loss is made good at the next start."""

    def __init__(
        self, replicas: ReplicaManager, lifecycle: BrokerLifecycle, controller: Controller, channel: ControllerChannel
    ) -> None:
        self._replicas = replicas
        self._lifecycle = lifecycle
        self._controller = controller
        self._channel = channel
        self._task: asyncio.Task[None] | None = None

    def maybe_tell(self) -> None:
        if self._replicas.misplaced and self._task is None and not self._lifecycle.is_fenced:
            self._task = asyncio.create_task(self._tell(), name="directory assignment")

    async def _tell(self) -> None:
        try:
            while self._replicas.misplaced:
                misplaced, self._replicas.misplaced = self._replicas.misplaced, {}
                await self._assign(misplaced)
        except ApiError as error:  # nothing but the metadata's view depends on it
            log.warning("the controller did not take the directories of new partitions: %s", error)
        finally:
            self._task = None

    async def _assign(self, misplaced: Mapping[tuple[Uuid, int], Uuid]) -> None:
        directories: dict[Uuid, dict[Uuid, list[int]]] = defaultdict(lambda: defaultdict(list))
        for (topic_id, partition), directory_id in misplaced.items():
            directories[directory_id][topic_id].append(partition)
        request = AssignReplicasToDirsRequest(
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
        response = await self._channel.ask(
            request,
            lambda: self._controller.on_assign_replicas_to_directories(request),
            timeout_ms=TIMEOUT_MS,
            lane="assignment",
        )
        assert isinstance(response, AssignReplicasToDirsResponse)
        if response.error_code != ErrorCode.NONE:
            raise ApiError(ErrorCode(response.error_code))

    async def stop(self) -> None:
        if self._task is not None:
            await self._task
