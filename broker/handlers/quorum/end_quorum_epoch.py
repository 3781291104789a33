"""EndQuorumEpoch (54), versions 0 and 1.

1 flexible, directory ids and the leader's endpoints (KIP-853).
"""

from __future__ import annotations

from broker.api import RequestContext, controller_handler
from protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from protocol.schema import Message


@controller_handler(EndQuorumEpochRequest)
async def end_quorum_epoch(ctx: RequestContext, request: EndQuorumEpochRequest) -> Message:
    return await ctx.broker.controller.serve_raft(request, ctx.listener.name)
