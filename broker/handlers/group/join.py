"""JoinGroup (11), versions 0 to 9.

1 rebalance timeout · 4 the member id is given in a first round (KIP-394) · 5 static membership (KIP-345) ·
6 flexible · 7 protocol type in the response · 8 reason (KIP-800) · 9 the assignment may be skipped (KIP-814).
"""

from __future__ import annotations

from collections.abc import Awaitable

from broker.api import RequestContext, handler
from broker.handlers.group.answers import client_of, respond
from protocol.errors import ErrorCode
from protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

FIRST_VERSION_WITH_REBALANCE_TIMEOUT = 1
FIRST_VERSION_WITH_PROTOCOL_TYPE = 7


@handler(JoinGroupRequest)
def join_group(ctx: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    """Waits until the rebalance completes."""

    def shape(response: JoinGroupResponse) -> JoinGroupResponse:
        if response.error_code:
            response.protocol_name = None
        if ctx.api_version < FIRST_VERSION_WITH_PROTOCOL_TYPE and response.protocol_name is None:
            response.protocol_name = ""
        return response

    def refuse(code: ErrorCode) -> JoinGroupResponse:
        return shape(JoinGroupResponse(error_code=code, member_id=request.member_id))

    if not request.group_id:
        return refuse(ErrorCode.INVALID_GROUP_ID)
    if ctx.api_version < FIRST_VERSION_WITH_REBALANCE_TIMEOUT:
        request.rebalance_timeout_ms = request.session_timeout_ms
    client = client_of(ctx)
    return respond(
        ctx,
        request.group_id,
        lambda core, now, token: core.join_group(now, token, request, client),
        refuse,
        shape,
    )
