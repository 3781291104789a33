"""CreateTopics (19), versions 2 to 7.

4 defaults for partitions and replicas (KIP-464) · 5 flexible, the resulting configuration (KIP-525) · 7 topic ids.
"""

from __future__ import annotations

from broker.api import RequestContext, handler
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse


@handler(CreateTopicsRequest)
async def create_topics(ctx: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    return await ctx.broker.controller.create_topics(request, principal=ctx.principal)
