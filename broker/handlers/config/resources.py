"""What the config APIs share: the kinds of resources, and the checks that each broker makes for itself.

Topics and the cluster-wide defaults are the controller's. A broker's own settings and loggers are answered only by
that broker, so requests for them have to name the broker they were sent to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from broker.api import RequestContext
from controller.configs import Change, check_entries
from controller.image import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    ConfigResource,
)
from protocol.errors import ApiError, ErrorCode

ALL_TYPES: Final = (
    RESOURCE_GROUP,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
)
LEGACY_ALTERABLE: Final = frozenset((RESOURCE_TOPIC, RESOURCE_BROKER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP))
ALTERABLE: Final = LEGACY_ALTERABLE | {RESOURCE_BROKER_LOGGER}


class Resource(Protocol):
    """A resource of any config request."""

    resource_type: int
    resource_name: str


def key_of(resource: Resource) -> ConfigResource:
    return resource.resource_type, resource.resource_name


def repeated(resources: Iterable[Resource]) -> set[ConfigResource]:
    return {key for key, times in Counter(map(key_of, resources)).items() if times > 1}


def check_alterable(
    ctx: RequestContext,
    resource: Resource,
    changes: Sequence[Change],
    twice: set[ConfigResource],
    alterable: frozenset[int],
) -> None:
    """ApiError for a change that must not even reach the controller."""
    if key_of(resource) in twice:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    check_entries(changes)
    if resource.resource_type not in alterable:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource.resource_type}")
    name = resource.resource_name
    if resource.resource_type == RESOURCE_BROKER and name:
        if _node_id(name, "Node") != ctx.broker.node_id:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {ctx.broker.node_id}, but received {name}",
            )
    elif resource.resource_type == RESOURCE_BROKER_LOGGER and _node_id(name, "Node") != ctx.broker.node_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Unexpected node id. Expected {ctx.broker.node_id}, but received {name}"
        )


def check_own_broker(ctx: RequestContext, name: str, or_default: str = "") -> None:
    """ApiError unless the resource to describe is this broker. `or_default` tells what else would be right."""
    if _node_id(name, "Broker") != ctx.broker.node_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {ctx.broker.node_id}{or_default} but received {name}",
        )


def _node_id(name: str, what: str) -> int:
    try:
        return int(name)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{what} id must be an integer, but it is: {name}") from None
