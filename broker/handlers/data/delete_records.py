"""DeleteRecords (21), versions 0 to 2. 2 is flexible."""

from __future__ import annotations

from broker.api import RequestContext, handler
from broker.internal_topics import is_internal
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
def delete_records(ctx: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    for topic in request.topics:
        results = [_one(ctx, topic.name, partition) for partition in topic.partitions]
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    return response


def _one(ctx: RequestContext, topic: str, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    result = DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=-1)
    try:
        result.low_watermark = _delete_before(ctx, topic, wanted)
    except ApiError as error:
        result.error_code = error.code
    except StorageError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return result


def _delete_before(ctx: RequestContext, topic: str, wanted: DeleteRecordsPartition) -> int:
    """The new log start offset. A topic that is only compacted keeps its records, so it is refused."""
    if is_internal(topic):
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    log = ctx.broker.replicas.partition(topic, wanted.partition_index).lead_or_raise()
    if not log.config.is_delete:
        raise ApiError(ErrorCode.POLICY_VIOLATION)
    offset = log.high_watermark if wanted.offset == UP_TO_HIGH_WATERMARK else wanted.offset
    if offset < 0 or offset > log.high_watermark:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
    log.advance_log_start(offset)
    return log.log_start_offset
