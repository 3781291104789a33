"""UnregisterBroker (64), version 0 (KIP-500)."""

from __future__ import annotations

from broker.api import RequestContext, handler
from protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


@handler(UnregisterBrokerRequest)
async def unregister_broker(ctx: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    return await ctx.broker.controller.unregister_broker(request, principal=ctx.principal)
