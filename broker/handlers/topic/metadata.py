"""Metadata (3), versions 0 to 13.

1 controller, racks, internal topics, "no topics" apart from "all topics" · 2 cluster id · 4 auto-creation is the
client's choice · 5 offline replicas · 6 LISTENER_NOT_FOUND · 7 leader epochs · 8 authorised operations · 9 flexible ·
10 topic ids in responses · 11 no operations of the cluster · 12 topics asked for by id · 13 an error for the whole
response (KIP-1102).

Apache Kafka answers a topic that it is about to create with UNKNOWN_TOPIC_OR_PARTITION and lets the client come back.
The topic is created within a millisecond here, so the answer waits for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping

from broker.api import RequestContext, handler
from broker.auto_creation import create_missing
from broker.endpoints import alive_nodes, controller_node
from broker.handlers.topic.view import PartitionView
from broker.internal_topics import is_internal
from broker.operations import ALL_ON_CLUSTER, ALL_ON_TOPIC, OMITTED
from controller.image import NO_LEADER, MetadataImage, PartitionImage, TopicImage
from controller.topic_names import why_invalid
from protocol.errors import ErrorCode
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.uuids import Uuid

FIRST_VERSION_WITH_NO_TOPICS = 1
FIRST_VERSION_WITH_LISTENER_ERROR = 6
FIRST_VERSION_BY_ID = 12


@handler(MetadataRequest)
def metadata(ctx: RequestContext, request: MetadataRequest) -> MetadataResponse | Awaitable[MetadataResponse]:
    asked = request.topics
    if asked is None or (not asked and ctx.api_version < FIRST_VERSION_WITH_NO_TOPICS):
        image = ctx.broker.image
        return _response(ctx, request, image, _described(ctx, image, image.topics_by_name.values()))
    if any(_is_malformed(topic, ctx.api_version) for topic in asked):
        return MetadataResponse(topics=[_refused(topic) for topic in asked])  # of the cluster it says nothing
    if any(topic.topic_id != Uuid.ZERO for topic in asked):
        return _by_id(ctx, request, dict.fromkeys(t.topic_id for t in asked if t.topic_id != Uuid.ZERO))
    return _by_name(ctx, request, dict.fromkeys(topic.name or "" for topic in asked))


def _is_malformed(topic: MetadataRequestTopic, api_version: int) -> bool:
    """Neither name nor id, or an id before version 12, whose responses could not name an unknown id."""
    if topic.topic_id == Uuid.ZERO:
        return topic.name is None
    return api_version < FIRST_VERSION_BY_ID


def _refused(topic: MetadataRequestTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id)


def _by_id(ctx: RequestContext, request: MetadataRequest, ids: Iterable[Uuid]) -> MetadataResponse:
    """Ids win where a request mixes them with names: the names are then not looked at."""
    image = ctx.broker.image
    found, unknown = [], []
    for topic_id in ids:
        topic = image.topics_by_id.get(topic_id)
        if topic is None:
            unknown.append(MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id))
        else:
            found.append(topic)
    response = _response(ctx, request, image, _described(ctx, image, found))
    response.topics += unknown
    return response


def _by_name(
    ctx: RequestContext, request: MetadataRequest, names: Iterable[str]
) -> MetadataResponse | Awaitable[MetadataResponse]:
    known = ctx.broker.image.topics_by_name
    errors = {name: _missing_error(name) for name in names if name not in known}
    if errors and request.allow_auto_topic_creation and ctx.broker.config.auto_create_topics_enable:
        creatable = [name for name, error in errors.items() if error != ErrorCode.INVALID_TOPIC_EXCEPTION]
        if creatable:
            return _create_and_describe(ctx, request, names, errors, creatable)
    return _named(ctx, request, names, errors)


async def _create_and_describe(
    ctx: RequestContext,
    request: MetadataRequest,
    names: Iterable[str],
    errors: dict[str, ErrorCode],
    creatable: list[str],
) -> MetadataResponse:
    errors.update(await create_missing(ctx, creatable))
    return _named(ctx, request, names, errors)


def _named(
    ctx: RequestContext, request: MetadataRequest, names: Iterable[str], errors: Mapping[str, ErrorCode]
) -> MetadataResponse:
    image = ctx.broker.image
    found, missing = [], []
    for name in names:
        topic = image.topics_by_name.get(name)
        if topic is not None:
            found.append(topic)
        else:
            error = errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            missing.append(MetadataResponseTopic(error_code=error, name=name, is_internal=is_internal(name)))
    return _response(ctx, request, image, _described(ctx, image, found) + missing)


def _missing_error(name: str) -> ErrorCode:
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if why_invalid(name) is None else ErrorCode.INVALID_TOPIC_EXCEPTION


def _response(
    ctx: RequestContext, request: MetadataRequest, image: MetadataImage, topics: list[MetadataResponseTopic]
) -> MetadataResponse:
    if request.include_topic_authorized_operations:
        for topic in topics:
            topic.topic_authorized_operations = ALL_ON_TOPIC
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in alive_nodes(image, ctx)
        ],
        cluster_id=ctx.broker.cluster_id,
        controller_id=controller_node(image, ctx),
        topics=topics,
        cluster_authorized_operations=(ALL_ON_CLUSTER if request.include_cluster_authorized_operations else OMITTED),
    )


def _described(ctx: RequestContext, image: MetadataImage, topics: Iterable[TopicImage]) -> list[MetadataResponseTopic]:
    view = PartitionView(image, ctx.listener.name)
    return [
        MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=is_internal(topic.name),
            partitions=[
                _partition(index, partition, view, ctx.api_version)
                for index, partition in sorted(topic.partitions.items())
            ],
        )
        for topic in topics
    ]


def _partition(
    index: int, partition: PartitionImage, view: PartitionView, api_version: int
) -> MetadataResponsePartition:
    leader = view.leader_of(partition)
    replicas, isr = list(partition.replicas), list(partition.isr)
    error = ErrorCode.NONE
    if api_version == 0:
        # Version 0 promises that every node it names is in its list of brokers.
        replicas, isr = view.reachable(partition.replicas), view.reachable(partition.isr)
        if len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
    if leader == NO_LEADER:
        error = ErrorCode.LEADER_NOT_AVAILABLE
        if api_version >= FIRST_VERSION_WITH_LISTENER_ERROR and view.is_registered(partition.leader):
            error = ErrorCode.LISTENER_NOT_FOUND
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=view.offline_replicas(partition),
    )
