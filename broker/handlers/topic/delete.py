"""DeleteTopics (20), versions 1 to 6.

3 TOPIC_DELETION_DISABLED · 4 flexible · 5 error messages · 6 topics by id (KIP-516).
"""

from __future__ import annotations

from broker.api import RequestContext, handler
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse


@handler(DeleteTopicsRequest)
async def delete_topics(ctx: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    return await ctx.broker.controller.delete_topics(request, principal=ctx.principal, api_version=ctx.api_version)
