"""AlterPartition (56), versions 2 and 3.

3 the epochs of the brokers in the ISR (KIP-903).
"""

from __future__ import annotations

from broker.api import RequestContext, controller_handler
from protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse


@controller_handler(AlterPartitionRequest)
async def alter_partition(ctx: RequestContext, request: AlterPartitionRequest) -> AlterPartitionResponse:
    return await ctx.broker.controller.on_alter_partition(request, api_version=ctx.api_version)
