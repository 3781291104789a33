"""ListConfigResources (74), versions 0 and 1.

0 lists client metrics subscriptions (KIP-714) · 1 any kind of resource that can have configuration (KIP-1142).
"""

from __future__ import annotations

from broker.api import RequestContext, handler
from broker.handlers.config.resources import ALL_TYPES
from controller.image import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_TOPIC,
    MetadataImage,
)
from protocol.errors import ErrorCode
from protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)


@handler(ListConfigResourcesRequest)
def list_config_resources(ctx: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    wanted = set(request.resource_types) if ctx.api_version > 0 else {RESOURCE_CLIENT_METRICS}
    if not wanted:
        wanted = set(ALL_TYPES)
    if not wanted.issubset(ALL_TYPES):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    image = ctx.broker.image
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in ALL_TYPES
            if kind in wanted
            for name in _names(image, kind)
        ]
    )


def _names(image: MetadataImage, kind: int) -> list[str]:
    if kind == RESOURCE_TOPIC:
        return list(image.topics_by_name)
    if kind in (RESOURCE_BROKER, RESOURCE_BROKER_LOGGER):
        return [str(broker_id) for broker_id in sorted(image.brokers)]
    # Groups and client metrics subscriptions exist here by being configured.
    return [name for resource_type, name in image.configs if resource_type == kind]
