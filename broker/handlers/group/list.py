"""ListGroups (16), versions 0 to 5.

3 flexible · 4 state filter (KIP-518) · 5 type filter (KIP-848).
"""

from __future__ import annotations

from broker.api import RequestContext, handler
from protocol.errors import ApiError
from protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse


@handler(ListGroupsRequest)
def list_groups(ctx: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    """Every broker lists the groups that it coordinates."""
    try:
        cores = ctx.broker.groups.cores()
    except ApiError as error:
        return ListGroupsResponse(error_code=error.code)
    return ListGroupsResponse(
        groups=[group for core in cores for group in core.list_groups(request.states_filter, request.types_filter)]
    )
