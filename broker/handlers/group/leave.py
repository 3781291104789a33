"""LeaveGroup (13), versions 0 to 5.

3 several members at once, by instance id too (KIP-345) · 4 flexible · 5 reason (KIP-800).
"""

from __future__ import annotations

from collections.abc import Awaitable

from broker.api import RequestContext, handler
from broker.handlers.group.answers import client_of, respond
from protocol.errors import ErrorCode
from protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

FIRST_VERSION_WITH_MEMBERS = 3


@handler(LeaveGroupRequest)
def leave_group(ctx: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
    """Before version 3 one member leaves, and what became of it is the error of the whole response."""

    def shape(response: LeaveGroupResponse) -> LeaveGroupResponse:
        if ctx.api_version < FIRST_VERSION_WITH_MEMBERS:
            if not response.error_code and response.members:
                response.error_code = response.members[0].error_code
            response.members = []
        return response

    if not request.group_id:
        return _refuse(ErrorCode.INVALID_GROUP_ID)
    if ctx.api_version < FIRST_VERSION_WITH_MEMBERS:
        request.members = [MemberIdentity(member_id=request.member_id)]
    client = client_of(ctx)
    return respond(
        ctx,
        request.group_id,
        lambda core, now, token: core.leave_group(now, token, request, client),
        _refuse,
        shape,
    )


def _refuse(code: ErrorCode) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)
