"""ElectLeaders (43), versions 0 to 2.

1 the kind of election, unclean as well as preferred (KIP-460) · 2 flexible.
"""

from __future__ import annotations

from broker.api import RequestContext, handler
from protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse


@handler(ElectLeadersRequest)
async def elect_leaders(ctx: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    return await ctx.broker.controller.elect_leaders(request, principal=ctx.principal, api_version=ctx.api_version)
