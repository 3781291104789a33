"""OffsetCommit (8), versions 2 to 10.

5 no retention time · 6 leader epochs (KIP-320) · 7 static membership · 8 flexible · 9 member epochs (KIP-848) ·
10 topic ids.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable

from broker.api import RequestContext, handler
from broker.handlers.group.answers import client_of, respond
from controller.image import MetadataImage
from protocol.errors import ErrorCode
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

FIRST_VERSION_WITH_TOPIC_IDS = 10


@handler(OffsetCommitRequest)
def offset_commit(
    ctx: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    """What does not exist is answered here; the rest goes to the group, and the answers are put together."""
    known, unknown = _sorted_out(request.topics, ctx.broker.image, ctx.api_version)
    if not known:
        return OffsetCommitResponse(topics=unknown)
    request.topics = known

    def shape(response: OffsetCommitResponse) -> OffsetCommitResponse:
        if unknown:
            response.topics = _merged(unknown, response.topics)
        return response

    def refuse(code: ErrorCode) -> OffsetCommitResponse:
        return shape(OffsetCommitResponse(topics=[_failed(topic, topic.partitions, code) for topic in known]))

    client = client_of(ctx)
    return respond(
        ctx,
        request.group_id,
        lambda core, now, token: core.offset_commit(now, token, request, client),
        refuse,
        shape,
    )


def _sorted_out(
    topics: Iterable[OffsetCommitRequestTopic], image: MetadataImage, api_version: int
) -> tuple[list[OffsetCommitRequestTopic], list[OffsetCommitResponseTopic]]:
    """The topics with name and id and only those of their partitions that exist; and the answers for the others."""
    known: list[OffsetCommitRequestTopic] = []
    unknown: list[OffsetCommitResponseTopic] = []
    for topic in topics:
        by_id = api_version >= FIRST_VERSION_WITH_TOPIC_IDS
        found = image.topics_by_id.get(topic.topic_id) if by_id else image.topics_by_name.get(topic.name)
        if found is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            unknown.append(_failed(topic, topic.partitions, code))
            continue
        topic.name, topic.topic_id = found.name, found.topic_id
        missing = [one for one in topic.partitions if one.partition_index not in found.partitions]
        if missing:
            unknown.append(_failed(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            topic.partitions = [one for one in topic.partitions if one.partition_index in found.partitions]
        if topic.partitions:
            known.append(topic)
    return known, unknown


def _failed(
    topic: OffsetCommitRequestTopic, partitions: Iterable[OffsetCommitRequestPartition], code: ErrorCode
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=one.partition_index, error_code=code) for one in partitions
        ],
    )


def _merged(
    first: list[OffsetCommitResponseTopic], second: Iterable[OffsetCommitResponseTopic]
) -> list[OffsetCommitResponseTopic]:
    by_name = {(topic.name, topic.topic_id): topic for topic in first}
    for topic in second:
        there = by_name.get((topic.name, topic.topic_id))
        if there is None:
            first.append(topic)
        else:
            there.partitions.extend(topic.partitions)
    return first
