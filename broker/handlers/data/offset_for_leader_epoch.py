"""OffsetForLeaderEpoch (23), versions 2 to 4.

2 the client's leader epoch (KIP-320) · 3 replica id · 4 flexible. Consumers ask it after a change of leader,
to learn whether what they read was truncated.
"""

from __future__ import annotations

from broker.api import RequestContext, handler
from protocol.errors import ApiError, ErrorCode
from protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from storage.errors import StorageError


@handler(OffsetForLeaderEpochRequest)
def offset_for_leader_epoch(ctx: RequestContext, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        results = [_one(ctx, topic.topic, partition) for partition in topic.partitions]
        response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=results))
    return response


def _one(ctx: RequestContext, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    result = EpochEndOffset(partition=wanted.partition)
    try:
        partition = ctx.broker.replicas.partition(topic, wanted.partition)
        log = partition.lead_or_raise(wanted.current_leader_epoch)
        result.leader_epoch, result.end_offset = log.end_offset_for_epoch(wanted.leader_epoch)
    except ApiError as error:
        result.error_code = error.code
    except StorageError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return result
