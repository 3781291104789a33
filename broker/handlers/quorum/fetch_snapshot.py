"""FetchSnapshot (59), versions 0 and 1.

1 directory ids (KIP-853).
"""

from __future__ import annotations

from broker.api import RequestContext, controller_handler
from protocol.messages.fetch_snapshot import FetchSnapshotRequest
from protocol.schema import Message


@controller_handler(FetchSnapshotRequest)
async def fetch_snapshot(ctx: RequestContext, request: FetchSnapshotRequest) -> Message:
    return await ctx.broker.controller.serve_raft(request, ctx.listener.name)
