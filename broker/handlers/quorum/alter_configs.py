"""AlterConfigs (33), versions 0 to 2, on a controller's listener.

What only the broker concerned can check was checked there; loggers are changed on brokers alone.
"""

from __future__ import annotations

from broker.api import RequestContext, controller_handler
from protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse


@controller_handler(AlterConfigsRequest)
async def alter_configs(ctx: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    return await ctx.broker.controller.alter_configs(request, principal=ctx.principal)
