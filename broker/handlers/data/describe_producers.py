"""DescribeProducers (61), version 0: the producers a partition's leader remembers."""

from __future__ import annotations

from broker.api import RequestContext, handler
from protocol.errors import ApiError
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


@handler(DescribeProducersRequest)
def describe_producers(ctx: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    response = DescribeProducersResponse()
    for topic in request.topics:
        results = [_one(ctx, topic.name, index) for index in topic.partition_indexes]
        response.topics.append(TopicResponse(name=topic.name, partitions=results))
    return response


def _one(ctx: RequestContext, topic: str, index: int) -> PartitionResponse:
    try:
        log = ctx.broker.replicas.partition(topic, index).lead_or_raise()
    except ApiError as error:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message or None)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.current_txn_start_offset,
            )
            for producer in log.producers.active_producers()
        ],
    )
