"""OffsetDelete (47), version 0 (KIP-496)."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable

from broker.api import RequestContext, handler
from broker.handlers.group.answers import respond
from protocol.errors import ErrorCode
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


@handler(OffsetDeleteRequest)
def offset_delete(
    ctx: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
    image = ctx.broker.image
    known: list[OffsetDeleteRequestTopic] = []
    unknown: list[OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        found = image.topics_by_name.get(topic.name)
        there = () if found is None else found.partitions
        missing = [one for one in topic.partitions if one.partition_index not in there]
        if missing:
            unknown.append(_unknown(topic.name, missing))
            topic.partitions = [one for one in topic.partitions if one.partition_index in there]
        if topic.partitions:
            known.append(topic)
    request.topics = known

    def shape(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
        if unknown and not response.error_code:
            response.topics = _merged(unknown, response.topics)
        return response

    if not request.group_id:
        return _refuse(ErrorCode.INVALID_GROUP_ID)
    return respond(
        ctx,
        request.group_id,
        lambda core, now, token: core.offset_delete(now, token, request),
        _refuse,
        shape,
    )


def _refuse(code: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code)


def _unknown(name: str, partitions: Iterable[OffsetDeleteRequestPartition]) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=name,
        partitions=[
            OffsetDeleteResponsePartition(
                partition_index=one.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            for one in partitions
        ],
    )


def _merged(
    first: list[OffsetDeleteResponseTopic], second: Iterable[OffsetDeleteResponseTopic]
) -> list[OffsetDeleteResponseTopic]:
    by_name = {topic.name: topic for topic in first}
    for topic in second:
        there = by_name.get(topic.name)
        if there is None:
            first.append(topic)
        else:
            there.partitions.extend(topic.partitions)
    return first
