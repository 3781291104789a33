"""ApiVersions (18), versions 0 to 4.

1 throttle time · 3 flexible, client software name and version (KIP-511), features (KIP-584) · 4 features whose lowest
version is 0 (KAFKA-17011: version 3 must hide them, as clients before 3.9 refuse them).

The list is derived from the registered handlers. For a version that we do not serve the connection passes an empty
request and sends the response at version 0 (KIP-511): UNSUPPORTED_VERSION and the versions of this API alone, from
which the client learns what to ask with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from broker.api import CONTROLLER_HANDLERS, HANDLERS, HandlerEntry, RequestContext, handler
from controller.features import SUPPORTED_FEATURES
from controller.image import KRAFT_VERSION_FEATURE, FeaturesImage, VersionRange
from protocol.errors import ErrorCode
from protocol.messages import CONTROLLER_APIS
from protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

FIRST_VERSION_WITH_SOFTWARE_NAME = 3
FIRST_VERSION_WITH_ZERO_FEATURES = 4

# KIP-511: what a client may call itself, so that the name can stand in metrics and logs as it is.
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handler(ApiVersionsRequest)
def api_versions(ctx: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if ctx.api_version not in ApiVersionsRequest.VERSIONS:
        key = ApiVersionsRequest.API_KEY
        own_versions = [_listed(key, HANDLERS[key])]
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own_versions)
    if ctx.api_version >= FIRST_VERSION_WITH_SOFTWARE_NAME and not (
        _SOFTWARE_NAME.fullmatch(request.client_software_name)
        and _SOFTWARE_NAME.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    image = ctx.broker.image
    return ApiVersionsResponse(
        api_keys=[_listed(key, entry) for key, entry in sorted(_served(ctx).items())],
        supported_features=_supported(SUPPORTED_FEATURES, ctx.api_version),
        finalized_features_epoch=image.offset,
        finalized_features=_finalized(image.features, ctx.broker.controller.kraft_version),
    )


def _served(ctx: RequestContext) -> Mapping[int, HandlerEntry]:
    """A controller's listener serves other APIs than a broker's."""
    if ctx.listener.name not in ctx.broker.config.controller_listener_names:
        return HANDLERS
    return {**{key: entry for key, entry in HANDLERS.items() if key in CONTROLLER_APIS}, **CONTROLLER_HANDLERS}


def _listed(key: int, entry: HandlerEntry) -> ApiVersion:
    return ApiVersion(api_key=key, min_version=entry.advertised_min_version, max_version=entry.max_version)


def _supported(features: Mapping[str, VersionRange], api_version: int) -> list[SupportedFeatureKey]:
    lowest = 0 if api_version >= FIRST_VERSION_WITH_ZERO_FEATURES else 1
    return [
        SupportedFeatureKey(name=name, min_version=levels.min_version, max_version=levels.max_version)
        for name, levels in features.items()
        if levels.min_version >= lowest
    ]


def _finalized(features: FeaturesImage, kraft_version: int) -> list[FinalizedFeatureKey]:
    """kraft.version is not among the records of the image: it is the log's own."""
    levels = {KRAFT_VERSION_FEATURE: kraft_version, **features.finalized}
    return [
        FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
        for name, level in levels.items()
        if level > 0
    ]
