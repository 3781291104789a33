"""Vote (52), versions 0 to 2.

1 directory ids (KIP-853) · 2 pre-vote (KIP-996).
"""

from __future__ import annotations

from broker.api import RequestContext, controller_handler
from protocol.messages.vote import VoteRequest
from protocol.schema import Message


@controller_handler(VoteRequest)
async def vote(ctx: RequestContext, request: VoteRequest) -> Message:
    return await ctx.broker.controller.serve_raft(request, ctx.listener.name)
