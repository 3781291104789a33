"""UpdateRaftVoter (82), version 0 (KIP-853)."""

from __future__ import annotations

from broker.api import RequestContext, controller_handler
from protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from protocol.schema import Message


@controller_handler(UpdateRaftVoterRequest)
async def update_raft_voter(ctx: RequestContext, request: UpdateRaftVoterRequest) -> Message:
    return await ctx.broker.controller.serve_raft(request, ctx.listener.name)
