"""DeleteRecords (21), versions 0 to 2. 2 is flexible."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import NamedTuple

from broker.api import RequestContext, handler
from broker.internal_topics import is_internal
from broker.partition import Partition
from protocol.errors import ApiError, ErrorCode
from protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from storage.errors import StorageError

UP_TO_HIGH_WATERMARK = -1


@handler(DeleteRecordsRequest)
def delete_records(
    ctx: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | asyncio.Future[DeleteRecordsResponse]:
    """Answers when every replica that lives has deleted them, as Kafka does: what is deleted must not come back with
    another leader."""
    response = DeleteRecordsResponse()
    unfinished: list[_Unfinished] = []
    for topic in request.topics:
        results = [_one(ctx, topic.name, partition, unfinished) for partition in topic.partitions]
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    return _Waiting(response, unfinished, request.timeout_ms).future if unfinished else response


class _Unfinished(NamedTuple):
    partition: Partition
    offset: int
    result: DeleteRecordsPartitionResult


class _Waiting:
    """Until the followers have moved their log starts, or the client's deadline."""

    __slots__ = ("_left", "_response", "_timer", "future")

    def __init__(self, response: DeleteRecordsResponse, unfinished: list[_Unfinished], timeout_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self.future: asyncio.Future[DeleteRecordsResponse] = loop.create_future()
        self._response = response
        self._left = {id(one): one for one in unfinished}
        self._timer = loop.call_later(max(timeout_ms, 0) / 1000, self._on_deadline)
        self.future.add_done_callback(lambda _: self._timer.cancel())
        for one in unfinished:
            one.partition.when_deleted(one.offset, partial(self._on_deleted, one))

    def _on_deleted(self, one: _Unfinished, outcome: ErrorCode) -> None:
        if self.future.done() or self._left.pop(id(one), None) is None:
            return
        one.result.error_code = outcome
        one.result.low_watermark = one.partition.low_watermark if outcome is ErrorCode.NONE else -1
        if not self._left:
            self.future.set_result(self._response)

    def _on_deadline(self) -> None:
        if not self.future.done():
            for one in self._left.values():
                one.result.error_code = ErrorCode.REQUEST_TIMED_OUT
                one.result.low_watermark = one.partition.low_watermark
            self.future.set_result(self._response)


def _one(
    ctx: RequestContext, topic: str, wanted: DeleteRecordsPartition, unfinished: list[_Unfinished]
) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=-1)
    try:
        partition, offset = _delete_before(ctx, topic, wanted)
        result.low_watermark = partition.low_watermark
        if result.low_watermark < offset:
            unfinished.append(_Unfinished(partition, offset, result))
    except ApiError as error:
        result.error_code = error.code
    except StorageError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return result


def _delete_before(ctx: RequestContext, topic: str, wanted: DeleteRecordsPartition) -> tuple[Partition, int]:
    """Moves the log start offset here. A topic that is only compacted keeps its records, so it is refused."""
    if is_internal(topic):
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = ctx.broker.replicas.partition(topic, wanted.partition_index)
    log = partition.lead_or_raise()
    if not log.config.is_delete:
        raise ApiError(ErrorCode.POLICY_VIOLATION)
    offset = log.high_watermark if wanted.offset == UP_TO_HIGH_WATERMARK else wanted.offset
    if offset < 0 or offset > log.high_watermark:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
    log.advance_log_start(offset)
    return partition, offset
