"""ListPartitionReassignments (46), version 0 (KIP-455)."""

from __future__ import annotations

from broker.api import RequestContext, handler
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


@handler(ListPartitionReassignmentsRequest)
async def list_partition_reassignments(
    ctx: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    return await ctx.broker.controller.list_partition_reassignments(request, principal=ctx.principal)
