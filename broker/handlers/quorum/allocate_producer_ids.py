"""AllocateProducerIds (67), version 0 (KIP-730)."""

from __future__ import annotations

from broker.api import RequestContext, controller_handler
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


@controller_handler(AllocateProducerIdsRequest)
async def allocate_producer_ids(
    ctx: RequestContext, request: AllocateProducerIdsRequest
) -> AllocateProducerIdsResponse:
    return await ctx.broker.controller.on_allocate_producer_ids(request)
