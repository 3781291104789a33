"""RemoveRaftVoter (81), version 0 (KIP-853)."""

from __future__ import annotations

from broker.api import RequestContext, handler
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from protocol.schema import Message


@handler(RemoveRaftVoterRequest)
async def remove_raft_voter(ctx: RequestContext, request: RemoveRaftVoterRequest) -> Message:
    return await ctx.broker.controller.serve_raft(request, ctx.listener.name)
