"""UpdateFeatures (57), versions 0 to 2 (KIP-584).

1 the kind of change, dry runs (KIP-778) · 2 all updates or none, one error for all of them (KIP-1022).
"""

from __future__ import annotations

from broker.api import RequestContext, handler
from protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse


@handler(UpdateFeaturesRequest)
async def update_features(ctx: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    return await ctx.broker.controller.update_features(request, principal=ctx.principal, api_version=ctx.api_version)
