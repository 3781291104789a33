"""DescribeGroups (15), versions 0 to 6.

3 authorized operations (KIP-430) · 4 instance ids (KIP-345) · 5 flexible · 6 an error and its message for a group
that is not there (KIP-1043).
"""

from __future__ import annotations

from broker.api import RequestContext, handler
from broker.handlers.group.answers import client_of
from broker.operations import ALL_ON_GROUP
from protocol.errors import ApiError, ErrorCode
from protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse


@handler(DescribeGroupsRequest)
def describe_groups(ctx: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    groups = [_describe(ctx, group_id) for group_id in request.groups]
    if request.include_authorized_operations:
        for group in groups:
            if group.error_code == ErrorCode.NONE:
                group.authorized_operations = ALL_ON_GROUP
    return DescribeGroupsResponse(groups=groups)


def _describe(ctx: RequestContext, group_id: str) -> DescribedGroup:
    try:
        return ctx.broker.groups.core_of(group_id).describe_groups([group_id], client_of(ctx))[0]
    except ApiError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code)
