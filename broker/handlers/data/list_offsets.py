"""ListOffsets (2), versions 1 to 11.

2 isolation level · 4 leader epochs (KIP-320) · 6 flexible · 7 max timestamp (KIP-734) · 8 earliest local (KIP-405)
· 9 latest tiered (KIP-1005) · 10 timeout · 11 earliest pending upload.

The Spark connector asks this twice per poll: earliest and latest are read off the log in constant time.
"""

from __future__ import annotations

from collections import Counter

from broker.api import RequestContext, handler
from broker.handlers.data.fetch_repeat import READ_COMMITTED
from broker.partition import Partition
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

FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE = 5

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
    is_replica = request.replica_id >= 0
    response = ListOffsetsResponse()
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            if asked[topic.name, wanted.partition_index] > 1:
                results.append(_failed(wanted, ErrorCode.INVALID_REQUEST))
            else:
                results.append(_one(ctx, topic.name, wanted, committed, is_replica))
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=results))
    return response


def _one(
    ctx: RequestContext, topic: str, wanted: ListOffsetsPartition, committed: bool, is_replica: bool
) -> ListOffsetsPartitionResponse:
    if wanted.timestamp < 0 and ctx.api_version < _MIN_VERSION.get(wanted.timestamp, ctx.api_version + 1):
        return _failed(wanted, ErrorCode.UNSUPPORTED_VERSION)
    try:
        partition = ctx.broker.replicas.partition(topic, wanted.partition_index)
        log = partition.lead_or_raise(wanted.current_leader_epoch)
        found = _look_up(partition, log, wanted.timestamp, committed, is_replica)
    except ApiError as error:
        code = error.code
        if code is ErrorCode.OFFSET_NOT_AVAILABLE and ctx.api_version < FIRST_VERSION_WITH_OFFSET_NOT_AVAILABLE:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        return _failed(wanted, code)
    except StorageError:
        return _failed(wanted, ErrorCode.KAFKA_STORAGE_ERROR)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch,
    )


def _look_up(partition: Partition, log: Log, timestamp: int, committed: bool, is_replica: bool) -> TimestampAndOffset:
    """What may be read ends at the high watermark, or at the last stable offset for read_committed; for a follower at
    the log end.

    A leader that was just elected may know of less than the last one had committed and shown. Until it has caught up
    with its own log, its end would make a client believe that the partition has shrunk: OFFSET_NOT_AVAILABLE (KIP-207).
    """
    if is_replica:
        readable_end = log.log_end_offset
    else:
        readable_end = log.last_stable_offset if committed else log.high_watermark
    is_behind = not is_replica and log.high_watermark < partition.epoch_start_offset
    if timestamp == LATEST:
        if is_behind:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return TimestampAndOffset(-1, readable_end, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        epoch = log.leader_epochs.epoch_for_offset(log.log_start_offset)
        return TimestampAndOffset(-1, log.log_start_offset, -1 if epoch is None else epoch)
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return _NOT_FOUND  # nothing is in remote storage
    found = log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.lookup_timestamp(timestamp)
    if found is None or found.offset >= readable_end:
        if is_behind:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return _NOT_FOUND
    return found


def _failed(wanted: ListOffsetsPartition, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=code)
