"""Fetch (1) on a controller's listener: followers and observers of the metadata log, and nobody else.

12 diverging epochs · 13 topic ids · 15 the replica's own struct · 17 directory ids (KIP-853) · 18 the follower's high
watermark (KIP-1166).
"""

from __future__ import annotations

from broker.api import RequestContext, controller_handler
from broker.handlers.data.fetch import replica_of
from protocol.messages.fetch import FetchRequest
from protocol.schema import Message


@controller_handler(FetchRequest)
async def fetch_metadata(ctx: RequestContext, request: FetchRequest) -> Message:
    controller = ctx.broker.controller
    controller.probes.on_fetch(ctx.peer, replica_of(ctx, request)[0])
    return await controller.serve_raft(request, ctx.listener.name)
