"""DescribeTopicPartitions (75), version 0 (KIP-966).

Topics come in the order of their names and at most so many partitions at a time; a cursor says where the next request
goes on. The order makes the cursor stable: topics that appear or vanish in between do not shift the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.api import RequestContext, handler
from broker.handlers.topic.view import PartitionView
from broker.internal_topics import is_internal
from broker.operations import ALL_ON_TOPIC
from controller.image import MetadataImage, PartitionImage
from controller.topic_names import why_invalid
from protocol.errors import ErrorCode
from protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


@handler(DescribeTopicPartitionsRequest)
def describe_topic_partitions(
    ctx: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    image = ctx.broker.image
    cursor = request.cursor
    first = "" if cursor is None else cursor.topic_name
    asked = dict.fromkeys(topic.name for topic in request.topics) or image.topics_by_name
    names = sorted(name for name in asked if name >= first)
    if cursor is not None and (cursor.partition_index < 0 or (request.topics and first not in names)):
        return DescribeTopicPartitionsResponse(
            topics=[
                DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name)
                for topic in request.topics
            ]
        )
    limit = max(1, min(request.response_partition_limit, ctx.broker.config.max_request_partition_size_limit))
    view = PartitionView(image, ctx.listener.name)
    return _page(image, names, cursor, limit, view)


def _page(
    image: MetadataImage, names: Iterable[str], cursor: Cursor | None, limit: int, view: PartitionView
) -> DescribeTopicPartitionsResponse:
    response = DescribeTopicPartitionsResponse()
    remaining = limit
    for name in names:
        if remaining == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = image.topics_by_name.get(name)
        if topic is None:
            response.topics.append(_missing(name))
            continue
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        count = len(topic.partitions)
        end = min(start + remaining, count)
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=topic.topic_id,
                is_internal=is_internal(name),
                partitions=_described(topic.partitions, range(start, end), view),
                topic_authorized_operations=ALL_ON_TOPIC,
            )
        )
        if end < count:
            response.next_cursor = Cursor(topic_name=name, partition_index=end)
            break
        remaining -= max(0, end - start)
    return response


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    unknown = why_invalid(name) is None
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if unknown else ErrorCode.INVALID_TOPIC_EXCEPTION,
        name=name,
        is_internal=is_internal(name),
        topic_authorized_operations=ALL_ON_TOPIC,
    )


def _described(
    partitions: Mapping[int, PartitionImage], indexes: Iterable[int], view: PartitionView
) -> list[DescribeTopicPartitionsResponsePartition]:
    return [
        DescribeTopicPartitionsResponsePartition(
            partition_index=index,
            leader_id=view.leader_of(partition),
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            eligible_leader_replicas=list(partition.elr),
            last_known_elr=list(partition.last_known_elr),
            offline_replicas=view.offline_replicas(partition),
        )
        for index in indexes
        if (partition := partitions.get(index)) is not None
    ]
