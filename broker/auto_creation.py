"""Topics that come into being because somebody asked for them (auto.create.topics.enable).

An internal topic gets the shape that its coordinator needs; any other gets num.partitions and
default.replication.factor, by leaving both to the controller.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker.api import RequestContext
from broker.internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from config.broker import BrokerConfig
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

USE_DEFAULT = -1


async def create_missing(ctx: RequestContext, names: Iterable[str]) -> dict[str, ErrorCode]:
    """Creates topics of valid names; returns what a client is told of those that could not be created.

    Two clients may ask for the same new topic at once: the one that comes second finds it there.
    """
    topics = [creatable_topic(name, ctx.broker.config) for name in names]
    if not topics:
        return {}
    request = CreateTopicsRequest(topics=topics, timeout_ms=ctx.broker.config.request_timeout_ms)
    response = await ctx.broker.forwarding.create_topics(request, principal=ctx.principal)
    return {
        result.name: _told(ErrorCode(result.error_code))
        for result in response.topics
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    }


def _told(error: ErrorCode) -> ErrorCode:
    """A name that collides is the client's to correct. Whatever else went wrong may pass: it may ask again."""
    if error == ErrorCode.INVALID_TOPIC_EXCEPTION:
        return error
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def creatable_topic(name: str, config: BrokerConfig) -> CreatableTopic:
    if name == OFFSETS_TOPIC:
        return _internal(
            name,
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
    if name == TRANSACTIONS_TOPIC:
        return _internal(
            name,
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
    if name == SHARE_STATE_TOPIC:
        return _internal(
            name,
            config.share_coordinator_state_topic_num_partitions,
            config.share_coordinator_state_topic_replication_factor,
            {
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": str(config.share_coordinator_state_topic_min_isr),
                "retention.ms": "-1",
                "segment.bytes": str(config.share_coordinator_state_topic_segment_bytes),
            },
        )
    return CreatableTopic(name=name, num_partitions=USE_DEFAULT, replication_factor=USE_DEFAULT)


def _internal(name: str, partitions: int, replicas: int, configs: dict[str, str]) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
