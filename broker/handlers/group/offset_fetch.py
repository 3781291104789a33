"""OffsetFetch (9), versions 1 to 10.

2 null asks for all topics, an error for the whole response · 5 leader epochs (KIP-320) · 6 flexible · 7 require
stable (KIP-447) · 8 several groups (KIP-709) · 9 member id and epoch (KIP-848) · 10 topic ids.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from broker.api import RequestContext, handler
from broker.clock import now_ms
from broker.handlers.group.answers import respond_with
from protocol.errors import ErrorCode
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


GroupAnswer = OffsetFetchResponseGroup | Awaitable[OffsetFetchResponseGroup]


@handler(OffsetFetchRequest)
def offset_fetch(
    ctx: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    """Only what is committed is told: an offset that was read must not be lost with the coordinator."""
    groups = request.groups if ctx.api_version >= FIRST_VERSION_WITH_GROUPS else [_as_group(request)]
    answers = [_fetch(ctx, group, request.require_stable) for group in groups]
    known = [answer for answer in answers if isinstance(answer, OffsetFetchResponseGroup)]
    if len(known) < len(answers):
        return _respond_later(ctx, request, answers)
    return _response(ctx, request, known)


async def _respond_later(
    ctx: RequestContext, request: OffsetFetchRequest, answers: Sequence[GroupAnswer]
) -> OffsetFetchResponse:
    known = [one if isinstance(one, OffsetFetchResponseGroup) else await one for one in answers]
    return _response(ctx, request, known)


def _response(
    ctx: RequestContext, request: OffsetFetchRequest, answers: list[OffsetFetchResponseGroup]
) -> OffsetFetchResponse:
    if ctx.api_version >= FIRST_VERSION_WITH_GROUPS:
        return OffsetFetchResponse(groups=answers)
    return _single(answers[0], _as_group(request), ctx.api_version)


def _as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """The one group that a request before version 8 is about."""
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _fetch(ctx: RequestContext, group: OffsetFetchRequestGroup, require_stable: bool) -> GroupAnswer:
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

    def refuse(code: ErrorCode) -> OffsetFetchResponseGroup:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=code)

    def shape(answer: OffsetFetchResponseGroup) -> OffsetFetchResponseGroup:
        if answer.error_code:
            answer.topics = []
            return answer
        if by_id:
            answer.topics = [topic for topic in answer.topics if topic.topic_id != Uuid.ZERO]
        answer.topics += unknown
        return answer

    return respond_with(
        lambda: ctx.broker.groups.read(
            group.group_id, lambda core: core.offset_fetch(now_ms(), group, require_stable=require_stable)
        ),
        refuse,
        shape,
    )


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
