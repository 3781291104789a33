"""DeleteGroups (42), versions 0 to 2. 2 is flexible."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from broker.api import RequestContext, handler
from broker.handlers.group.answers import respond
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


@handler(DeleteGroupsRequest)
async def delete_groups(ctx: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """A group named twice is deleted once."""
    waiting: list[Awaitable[DeletableGroupResult]] = []
    results: list[DeletableGroupResult] = []
    for group_id in dict.fromkeys(request.groups_names):
        result = _delete(ctx, group_id)
        if isinstance(result, DeletableGroupResult):
            results.append(result)
        else:
            waiting.append(result)
    results += await asyncio.gather(*waiting)
    return DeleteGroupsResponse(results=results)


def _delete(ctx: RequestContext, group_id: str) -> DeletableGroupResult | Awaitable[DeletableGroupResult]:
    def refuse(code: ErrorCode) -> DeletableGroupResult:
        return DeletableGroupResult(group_id=group_id, error_code=code)

    def shape(results: list[DeletableGroupResult]) -> DeletableGroupResult:
        return results[0]

    return respond(ctx, group_id, lambda core, now, token: core.delete_groups(now, token, [group_id]), refuse, shape)
