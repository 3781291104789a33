"""AssignReplicasToDirs (73), version 0 (KIP-858)."""

from __future__ import annotations

from broker.api import RequestContext, controller_handler
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse


@controller_handler(AssignReplicasToDirsRequest)
async def assign_replicas_to_dirs(
    ctx: RequestContext, request: AssignReplicasToDirsRequest
) -> AssignReplicasToDirsResponse:
    return await ctx.broker.controller.on_assign_replicas_to_directories(request)
