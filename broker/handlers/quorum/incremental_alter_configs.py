"""IncrementalAlterConfigs (44), versions 0 and 1, on a controller's listener.

What only the broker concerned can check was checked there; loggers are changed on brokers alone.
"""

from __future__ import annotations

from broker.api import RequestContext, controller_handler
from protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse


@controller_handler(IncrementalAlterConfigsRequest)
async def incremental_alter_configs(
    ctx: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    return await ctx.broker.controller.incremental_alter_configs(request, principal=ctx.principal)
