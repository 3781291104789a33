"""CreatePartitions (37), versions 0 to 3.

2 flexible · 3 THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from __future__ import annotations

from broker.api import RequestContext, handler
from protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse


@handler(CreatePartitionsRequest)
async def create_partitions(ctx: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    return await ctx.broker.controller.create_partitions(request, principal=ctx.principal)
