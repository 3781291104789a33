"""BrokerHeartbeat (63), versions 0 to 2.

1 offline log directories (KIP-858) · 2 cordoned ones (KIP-1066).
"""

from __future__ import annotations

from broker.api import RequestContext, controller_handler
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


@controller_handler(BrokerHeartbeatRequest)
async def broker_heartbeat(ctx: RequestContext, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
    return await ctx.broker.controller.on_broker_heartbeat(request)
