"""OffsetFetch (9), versions 1 to 10.

2 null asks for all topics, an error for the whole response · 5 leader epochs (KIP-320) · 6 flexible · 7 require
stable (KIP-447) · 8 several groups (KIP-709) · 9 member id and epoch (KIP-848) · 10 topic ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from broker.api import RequestContext, handler
from broker.clock import now_ms
from protocol.errors import ApiError, ErrorCode
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from protocol.uuids import Uuid

FIRST_VERSION_WITH_ERROR = 2
FIRST_VERSION_WITH_GROUPS = 8
FIRST_VERSION_WITH_TOPIC_IDS = 10

INVALID_OFFSET = -1


@handler(OffsetFetchRequest)
def offset_fetch(
    ctx: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    """Only what is committed is told: an offset that was read must not be lost with the coordinator."""
    several = ctx.api_version >= FIRST_VERSION_WITH_GROUPS
    groups = [group.group_id for group in request.groups] if several else [request.group_id]
    unsettled = [one for group_id in groups if (one := ctx.broker.groups.settled(group_id)) is not None]
    return _offset_fetch_later(ctx, request, unsettled) if unsettled else _offset_fetch(ctx, request)


async def _offset_fetch_later(
    ctx: RequestContext, request: OffsetFetchRequest, unsettled: list[asyncio.Future[None]]
) -> OffsetFetchResponse:
    await asyncio.wait(unsettled)
    return _offset_fetch(ctx, request)


def _offset_fetch(ctx: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if ctx.api_version >= FIRST_VERSION_WITH_GROUPS:
        return OffsetFetchResponse(groups=[_fetch(ctx, group, request.require_stable) for group in request.groups])
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    group = OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)
    return _single(_fetch(ctx, group, request.require_stable), group, ctx.api_version)


def _fetch(ctx: RequestContext, group: OffsetFetchRequestGroup, require_stable: bool) -> OffsetFetchResponseGroup:
    image = ctx.broker.image
    by_id = ctx.api_version >= FIRST_VERSION_WITH_TOPIC_IDS
    unknown: list[OffsetFetchResponseTopics] = []
    if group.topics is not None:
        known = []
        for topic in group.topics:
            found = image.topics_by_id.get(topic.topic_id) if by_id else image.topics_by_name.get(topic.name)
            if found is not None:
                topic.name, topic.topic_id = found.name, found.topic_id
            if found is not None or not by_id:  # offsets are kept by name, so a name is enough
                known.append(topic)
            else:
                unknown.append(_failed(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        group.topics = known
    try:
        answer = ctx.broker.groups.core_of(group.group_id).offset_fetch(now_ms(), group, require_stable=require_stable)
    except ApiError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
    if answer.error_code:
        answer.topics = []
        return answer
    if by_id:
        answer.topics = [topic for topic in answer.topics if topic.topic_id != Uuid.ZERO]
    answer.topics += unknown
    return answer


def _failed(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=INVALID_OFFSET, metadata="", error_code=code
            )
            for index in topic.partition_indexes
        ],
    )


def _single(answer: OffsetFetchResponseGroup, asked: OffsetFetchRequestGroup, api_version: int) -> OffsetFetchResponse:
    """The shape before version 8. Version 1 has no error of its own, so each partition carries it."""
    code = ErrorCode(answer.error_code)
    if code and api_version < FIRST_VERSION_WITH_ERROR:
        answer.topics = [_failed(topic, code) for topic in asked.topics or ()]
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=one.partition_index,
                        committed_offset=one.committed_offset,
                        committed_leader_epoch=one.committed_leader_epoch,
                        metadata=one.metadata,
                        error_code=one.error_code,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in answer.topics
        ],
    )
