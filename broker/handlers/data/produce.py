"""Produce (0), versions 3 to 13.

3 transactional id, record batches v2 · 5 log start offset · 7 zstd · 8 record errors (KIP-467) · 9 flexible ·
10 current leader (KIP-951) · 12 implicit AddPartitionsToTxn (KIP-890) · 13 topic ids (KIP-516).

Versions 0 to 2 are advertised but not served, as in Apache Kafka: librdkafka wants to see them (KAFKA-18659).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from broker.api import Repetition, RequestContext, handler
from broker.clock import now_ms
from broker.endpoints import node_endpoint
from broker.handlers.data.produce_repeat import RepeatedProduce, answers_at_once, common_prefix
from broker.handlers.data.produce_wait import Uncommitted, WaitingProduce
from broker.internal_topics import is_writable_by
from broker.partition import Partition
from protocol.errors import ApiError, ErrorCode
from protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.records import HEADER_SIZE
from protocol.records.header import ATTRIBUTES_LOW_BYTE, TRANSACTIONAL_FLAG
from storage.errors import InvalidRecords, StorageError
from storage.log import Log

FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_LEADER = 10

# The log looked into the batch and refused it: its start offset goes with the error, as in Kafka.
_RECORD_ERRORS = (
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)


def repeated(ctx: RequestContext, request: ProduceRequest, prefix: bytes) -> RepeatedProduce | None:
    topic = request.topic_data[0]
    by_id = ctx.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    try:
        partition = _partition(ctx, topic, topic.partition_data[0].index, by_id)
    except ApiError:
        return None
    if not is_writable_by(partition.topic, ctx.client_id) or not answers_at_once(partition, request.acks):
        return None
    return RepeatedProduce(ctx, request, prefix, partition, _refused_alone)


@handler(ProduceRequest, advertised_min_version=0, repetition=Repetition(common_prefix, repeated))
def produce(ctx: RequestContext, request: ProduceRequest) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    """Appends synchronously: the records are views of the receive buffer, gone when this returns."""
    response = ProduceResponse()
    to_flush: list[tuple[Log, PartitionProduceResponse]] = []
    to_commit: list[Uncommitted] = []
    if request.acks not in (-1, 0, 1):
        for topic in request.topic_data:
            refused = [
                PartitionProduceResponse(index=data.index, error_code=ErrorCode.INVALID_REQUIRED_ACKS, base_offset=-1)
                for data in topic.partition_data
            ]
            response.responses.append(_topic_response(topic, refused))
        return response
    now = now_ms()
    by_id = ctx.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    for topic in request.topic_data:
        results: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            partition: Partition | None = None
            try:
                partition = _partition(ctx, topic, data.index, by_id)
                result, end_offset = _append(ctx, partition, data, request, now)
            except ApiError as error:
                result = _refused(ctx, response, partition, data.index, error)
            except StorageError:
                result = _not_stored(data.index)
            else:
                if partition.log.needs_flush(now):
                    to_flush.append((partition.log, result))
                if request.acks == -1 and not partition.commits_at_once:
                    to_commit.append(Uncommitted(partition, end_offset, result))
            results.append(result)
        response.responses.append(_topic_response(topic, results))
    committed = WaitingProduce(to_commit, response, request.timeout_ms).future if to_commit else None
    if to_flush:
        return _flush_then_answer(ctx, request.acks, response, to_flush, committed)
    if committed is not None:
        return committed
    return _answer(ctx, request.acks, response)


def _partition(ctx: RequestContext, topic: TopicProduceData, index: int, by_id: bool) -> Partition:
    replicas = ctx.broker.replicas
    return replicas.partition_by_id(topic.topic_id, index) if by_id else replicas.partition(topic.name, index)


def _append(
    ctx: RequestContext,
    partition: Partition,
    data: PartitionProduceData,
    request: ProduceRequest,
    now: int,
) -> tuple[PartitionProduceResponse, int]:
    """The answer if all goes well, and the offset behind the records."""
    records = data.records
    if not is_writable_by(partition.topic, ctx.client_id):
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if not records:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {ctx.api_version} must have exactly one record batch per partition",
        )
    if len(records) >= HEADER_SIZE and records[ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_FLAG:
        # No coordinator has begun a transaction, so none can be ongoing for this producer (KIP-890).
        raise ApiError(ErrorCode.INVALID_TXN_STATE, "There is no ongoing transaction for this producer")
    done = partition.append(records, now, acks=request.acks)
    answer = PartitionProduceResponse(
        index=data.index,
        base_offset=done.first_offset,
        log_append_time_ms=done.log_append_time,
        log_start_offset=done.log_start_offset,
    )
    return answer, done.last_offset + 1


def _not_stored(index: int) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, error_code=ErrorCode.KAFKA_STORAGE_ERROR, base_offset=-1)


def _refused_alone(
    ctx: RequestContext, request: ProduceRequest, partition: Partition, error: ApiError | StorageError
) -> ProduceResponse:
    """The response to a request of this one partition."""
    response = ProduceResponse()
    if isinstance(error, ApiError):
        result = _refused(ctx, response, partition, partition.index, error)
    else:
        result = _not_stored(partition.index)
    response.responses.append(_topic_response(request.topic_data[0], [result]))
    return response


def _refused(
    ctx: RequestContext,
    response: ProduceResponse,
    partition: Partition | None,
    index: int,
    error: ApiError,
) -> PartitionProduceResponse:
    result = PartitionProduceResponse(
        index=index, error_code=error.code, base_offset=-1, error_message=error.message or None
    )
    if error.code in _RECORD_ERRORS and partition is not None:
        result.log_start_offset = partition.log.log_start_offset
    if isinstance(error, InvalidRecords):
        result.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in error.record_errors
        ]
    if (
        error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        and partition is not None
        and ctx.api_version >= FIRST_VERSION_WITH_LEADER
    ):
        _point_to_leader(ctx, response, partition, result)
    return result


def _point_to_leader(
    ctx: RequestContext,
    response: ProduceResponse,
    partition: Partition,
    result: PartitionProduceResponse,
) -> None:
    """KIP-951: who leads now, so that the client need not ask for metadata first."""
    result.current_leader = LeaderIdAndEpoch(leader_id=partition.leader, leader_epoch=partition.leader_epoch)
    endpoint = node_endpoint(ctx, partition.leader)
    if endpoint is not None and all(node.node_id != partition.leader for node in response.node_endpoints):
        response.node_endpoints.append(
            NodeEndpoint(node_id=partition.leader, host=endpoint.host, port=endpoint.port, rack=endpoint.rack)
        )


def _topic_response(topic: TopicProduceData, results: list[PartitionProduceResponse]) -> TopicProduceResponse:
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results)


def _answer(ctx: RequestContext, acks: int, response: ProduceResponse) -> ProduceResponse | None:
    """With acks=0 there is no response, and an error is told by closing the connection, as Kafka does."""
    if acks != 0:
        return response
    failed = [
        f"{topic.name or topic.topic_id}-{result.index}: {ErrorCode(result.error_code).name}"
        for topic in response.responses
        for result in topic.partition_responses
        if result.error_code
    ]
    if failed:
        ctx.close_connection("a produce request with acks=0 failed for " + ", ".join(failed))
    return None


async def _flush_then_answer(
    ctx: RequestContext,
    acks: int,
    response: ProduceResponse,
    to_flush: list[tuple[Log, PartitionProduceResponse]],
    committed: asyncio.Future[ProduceResponse] | None,
) -> ProduceResponse | None:
    """`flush.messages` is due: what cannot be synced is not acknowledged."""
    outcomes = await asyncio.gather(*(log.flush() for log, _ in to_flush), return_exceptions=True)
    for (_, result), outcome in zip(to_flush, outcomes, strict=True):
        if isinstance(outcome, StorageError):
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            result.base_offset = -1
        elif isinstance(outcome, BaseException):
            raise outcome
    if committed is not None:
        return await committed
    return _answer(ctx, acks, response)
