"""AlterPartitionReassignments (45), versions 0 and 1 (KIP-455).

1 a caller may insist on the replication factor (KIP-860).
"""

from __future__ import annotations

from broker.api import RequestContext, handler
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)


@handler(AlterPartitionReassignmentsRequest)
async def alter_partition_reassignments(
    ctx: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    return await ctx.broker.controller.alter_partition_reassignments(request, principal=ctx.principal)
