"""DescribeConfigs (32), versions 1 to 4.

1 sources and synonyms (KIP-226) · 3 types and documentation (KIP-569) · 4 flexible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from broker.api import RequestContext, handler
from broker.handlers.config.other_entries import client_metrics_entries, group_entries, logger_entries
from broker.handlers.config.resources import check_own_broker
from config.broker import BrokerConfig
from config.describe import ConfigEntry, describe_broker, describe_cluster_default, describe_topic
from controller.image import (
    EMPTY,
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    MetadataImage,
)
from controller.topic_names import why_invalid
from protocol.errors import ApiError, ErrorCode
from protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


@handler(DescribeConfigsRequest)
def describe_configs(ctx: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    image = ctx.broker.image
    config = ctx.broker.controller.effective_config
    return DescribeConfigsResponse(
        results=[_result(ctx, request, resource, image, config) for resource in request.resources]
    )


def _result(
    ctx: RequestContext,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
    image: MetadataImage,
    config: BrokerConfig,
) -> DescribeConfigsResult:
    """An empty list of keys asks for all of them, like null."""
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    describe = _DESCRIBERS.get(resource.resource_type)
    if describe is None:
        result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, None
        return result
    try:
        entries = describe(ctx, resource.resource_name, image, config)
    except ApiError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    if resource.configuration_keys:
        keys = set(resource.configuration_keys)
        entries = [entry for entry in entries if entry.name in keys]
    result.configs = [_shaped(entry, request) for entry in entries]
    return result


def _shaped(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms: list[DescribeConfigsSynonym] = []
    if request.include_synonyms:
        synonyms = [DescribeConfigsSynonym(name=s.name, value=s.value, source=s.source) for s in entry.synonyms]
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=synonyms,
        config_type=entry.kind,
        documentation=entry.doc if request.include_documentation else None,
    )


def _topic(ctx: RequestContext, name: str, image: MetadataImage, config: BrokerConfig) -> Iterable[ConfigEntry]:
    problem = why_invalid(name)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if name not in image.topics_by_name:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return describe_topic(image.topic_configs(name), config)


def _broker(ctx: RequestContext, name: str, image: MetadataImage, config: BrokerConfig) -> Iterable[ConfigEntry]:
    """No name stands for the defaults of all brokers, of which only the dynamic ones are the cluster's."""
    if not name:
        return describe_cluster_default(image.default_broker_configs)
    check_own_broker(ctx, name, " or empty string,")
    return describe_broker(config)


def _loggers(ctx: RequestContext, name: str, image: MetadataImage, config: BrokerConfig) -> Iterable[ConfigEntry]:
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    check_own_broker(ctx, name)
    return logger_entries()


def _client_metrics(
    ctx: RequestContext, name: str, image: MetadataImage, config: BrokerConfig
) -> Iterable[ConfigEntry]:
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
    return client_metrics_entries(image.configs.get((RESOURCE_CLIENT_METRICS, name), EMPTY))


def _group(ctx: RequestContext, name: str, image: MetadataImage, config: BrokerConfig) -> Iterable[ConfigEntry]:
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    return group_entries(image.configs.get((RESOURCE_GROUP, name), EMPTY), config)


_Describer = Callable[[RequestContext, str, MetadataImage, BrokerConfig], Iterable[ConfigEntry]]

_DESCRIBERS: Final[dict[int, _Describer]] = {
    RESOURCE_TOPIC: _topic,
    RESOURCE_BROKER: _broker,
    RESOURCE_BROKER_LOGGER: _loggers,
    RESOURCE_CLIENT_METRICS: _client_metrics,
    RESOURCE_GROUP: _group,
}
