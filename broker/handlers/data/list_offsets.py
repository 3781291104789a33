"""ListOffsets (2), versions 1 to 11.

2 isolation level · 4 leader epochs (KIP-320) · 6 flexible · 7 max timestamp (KIP-734) · 8 earliest local (KIP-405)
· 9 latest tiered (KIP-1005) · 10 timeout · 11 earliest pending upload.

The Spark connector asks this twice per poll: earliest and latest are read off the log in constant time.
"""

from __future__ import annotations

from collections import Counter

from broker.api import RequestContext, handler
from broker.handlers.data.fetch_repeat import READ_COMMITTED
from protocol.errors import ApiError, ErrorCode
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from storage.errors import StorageError
from storage.log import Log
from storage.results import TimestampAndOffset

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

# The request version from which a client may ask for each of these.
_MIN_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}

_NOT_FOUND = TimestampAndOffset(-1, -1, -1)


@handler(ListOffsetsRequest)
def list_offsets(ctx: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    asked = Counter((topic.name, p.partition_index) for topic in request.topics for p in topic.partitions)
    committed = request.isolation_level == READ_COMMITTED
    response = ListOffsetsResponse()
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            if asked[topic.name, wanted.partition_index] > 1:
                results.append(_failed(wanted, ErrorCode.INVALID_REQUEST))
            else:
                results.append(_one(ctx, topic.name, wanted, committed))
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=results))
    return response


def _one(
    ctx: RequestContext, topic: str, wanted: ListOffsetsPartition, committed: bool
) -> ListOffsetsPartitionResponse:
    if wanted.timestamp < 0 and ctx.api_version < _MIN_VERSION.get(wanted.timestamp, ctx.api_version + 1):
        return _failed(wanted, ErrorCode.UNSUPPORTED_VERSION)
    try:
        partition = ctx.broker.replicas.partition(topic, wanted.partition_index)
        log = partition.lead_or_raise(wanted.current_leader_epoch)
        found = _look_up(log, wanted.timestamp, committed, partition.leader_epoch)
    except ApiError as error:
        return _failed(wanted, error.code)
    except StorageError:
        return _failed(wanted, ErrorCode.KAFKA_STORAGE_ERROR)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


def _look_up(log: Log, timestamp: int, committed: bool, leader_epoch: int) -> TimestampAndOffset:
    """What may be read ends at the high watermark, or at the last stable offset for read_committed."""
    readable_end = log.last_stable_offset if committed else log.high_watermark
    if timestamp == LATEST:
        return TimestampAndOffset(-1, readable_end, leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        epoch = log.leader_epochs.epoch_for_offset(log.log_start_offset)
        return TimestampAndOffset(-1, log.log_start_offset, -1 if epoch is None else epoch)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _NOT_FOUND  # nothing is in remote storage
    found = log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.lookup_timestamp(timestamp)
    if found is None or found.offset >= readable_end:
        return _NOT_FOUND
    return found


def _failed(wanted: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=code)
