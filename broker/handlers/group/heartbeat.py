"""Heartbeat (12), versions 0 to 4.

3 static membership (KIP-345) · 4 flexible.
"""

from __future__ import annotations

from collections.abc import Awaitable

from broker.api import RequestContext, handler
from broker.handlers.group.answers import client_of, respond
from protocol.errors import ErrorCode
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


@handler(HeartbeatRequest)
def heartbeat(ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
    if not request.group_id:
        return _refuse(ErrorCode.INVALID_GROUP_ID)
    client = client_of(ctx)
    return respond(
        ctx,
        request.group_id,
        lambda core, now, token: core.heartbeat(now, token, request, client),
        _refuse,
        writes=False,
    )


def _refuse(code: ErrorCode) -> HeartbeatResponse:
    """While the group is being loaded nobody knows better than the member that it is alive, so it is believed."""
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return HeartbeatResponse()
    return HeartbeatResponse(error_code=code)
