"""AddRaftVoter (80), versions 0 and 1 (KIP-853).

1 an answer before the change is committed, for a controller that adds itself.
"""

from __future__ import annotations

from broker.api import RequestContext, handler
from protocol.messages.add_raft_voter import AddRaftVoterRequest
from protocol.schema import Message


@handler(AddRaftVoterRequest)
async def add_raft_voter(ctx: RequestContext, request: AddRaftVoterRequest) -> Message:
    return await ctx.broker.controller.serve_raft(request, ctx.listener.name)
