"""AlterPartition: the changes of in-sync sets that this broker's partitions want, sent to the active controller.

One request is under way at a time; what comes up meanwhile goes out together in the next ones. A change is repeated
until the controller has decided it, or until the partition itself no longer waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import TYPE_CHECKING, Final

from broker.replication.leader import IsrChange, IsrResult
from controller.image import LEADER_RECOVERED
from protocol.errors import ApiError, ErrorCode
from protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    TopicData,
)
from protocol.uuids import Uuid

if TYPE_CHECKING:
    from broker.partition import Partition

log = logging.getLogger(__name__)

MAX_CHANGES_PER_REQUEST: Final = 2250
"""As many as Kafka's brokers tell directories in one request: the controller decides on a request in one go, and all
others wait meanwhile."""
RETRY_S: Final = 0.05  # Kafka's wait before an AlterPartition is repeated
_TIMEOUT_MS: Final = 5_000
"""Short, because each try is made anew with what is wanted then."""

Ask = Callable[[AlterPartitionRequest, float], Awaitable[AlterPartitionResponse]]
"""Sends to the active controller, wherever it is; raises ApiError when none answered in time."""

# The change was not made and must not be repeated as it is: the follower may not join, for now.
_NOT_ATTEMPTED: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
# Decided otherwise, or about a partition that is another one by now: the metadata will say.
_WAIT_FOR_METADATA: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


class IsrUpdates:
    """Owns the queue and the task that empties it."""

    def __init__(self, node_id: int, broker_epoch: Callable[[], int], ask: Ask) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._ask = ask
        self._queue: dict[tuple[Uuid, int], tuple[Partition, IsrChange]] = {}
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def submit(self, partition: Partition, change: IsrChange) -> None:
        if self._stopped:
            return
        self._queue[partition.topic_id, partition.index] = partition, change
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._send_all(), name="isr updates")

    async def _send_all(self) -> None:
        try:
            while self._queue:
                batch = dict(islice(self._queue.items(), MAX_CHANGES_PER_REQUEST))
                for key in batch:
                    del self._queue[key]
                again = await self._send(batch)
                for key, item in again.items():
                    self._queue.setdefault(key, item)
                if again:
                    await asyncio.sleep(RETRY_S)
        finally:
            self._task = None

    async def _send(
        self, batch: dict[tuple[Uuid, int], tuple[Partition, IsrChange]]
    ) -> dict[tuple[Uuid, int], tuple[Partition, IsrChange]]:
        """One request; returns what has to be sent again."""
        batch = {key: item for key, item in batch.items() if item[0].awaits(item[1])}
        if not batch:
            return {}
        try:
            response = await self._ask(self._request(batch), _TIMEOUT_MS)
        except ApiError as error:
            log.warning("%d changes of in-sync replicas are not decided yet: %s", len(batch), error)
            return batch
        if response.error_code != ErrorCode.NONE:
            # STALE_BROKER_EPOCH: this broker is being registered anew. The changes wait for that.
            log.warning("The controller refused AlterPartition: %s", ErrorCode(response.error_code).name)
            return batch
        again = dict(batch)
        for topic in response.topics:
            for answer in topic.partitions:
                item = again.pop((topic.topic_id, answer.partition_index), None)
                if item is None:
                    continue
                partition, change = item
                code = ErrorCode(answer.error_code)
                if code is ErrorCode.NONE:
                    result = IsrResult(answer.leader_epoch, answer.partition_epoch, tuple(answer.isr))
                    partition.on_isr_result(change, result)
                elif code in _NOT_ATTEMPTED:
                    partition.on_isr_refused(change)
                elif code not in _WAIT_FOR_METADATA:
                    again[topic.topic_id, answer.partition_index] = item
                if code is not ErrorCode.NONE:
                    log.info("%s: the in-sync set %s was refused: %s", partition, change.broker_ids, code.name)
        return again

    def _request(self, batch: dict[tuple[Uuid, int], tuple[Partition, IsrChange]]) -> AlterPartitionRequest:
        topics: dict[Uuid, list[PartitionData]] = {}
        for (topic_id, index), (_, change) in batch.items():
            topics.setdefault(topic_id, []).append(
                PartitionData(
                    partition_index=index,
                    leader_epoch=change.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=member.broker_id, broker_epoch=member.broker_epoch)
                        for member in change.isr
                    ],
                    leader_recovery_state=LEADER_RECOVERED,
                    partition_epoch=change.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            topics=[TopicData(topic_id=topic_id, partitions=parts) for topic_id, parts in topics.items()],
        )

    async def stop(self) -> None:
        self._stopped = True
        self._queue.clear()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
