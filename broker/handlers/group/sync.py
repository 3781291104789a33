"""SyncGroup (14), versions 0 to 5.

3 static membership (KIP-345) · 4 flexible · 5 protocol type and name, which the group's have to match (KIP-559).
"""

from __future__ import annotations

from collections.abc import Awaitable

from broker.api import RequestContext, handler
from broker.handlers.group.answers import client_of, respond
from protocol.errors import ErrorCode
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

FIRST_VERSION_WITH_PROTOCOL = 5


@handler(SyncGroupRequest)
def sync_group(ctx: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    """Waits until the leader brings the assignment."""
    if ctx.api_version >= FIRST_VERSION_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        return _refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not request.group_id:
        return _refuse(ErrorCode.INVALID_GROUP_ID)
    client = client_of(ctx)
    return respond(
        ctx,
        request.group_id,
        lambda core, now, token: core.sync_group(now, token, request, client),
        _refuse,
    )


def _refuse(code: ErrorCode) -> SyncGroupResponse:
    """A group that is being loaded has lost its rebalance, and starts over. Java's classic consumer, which knows how to
    join again, takes COORDINATOR_LOAD_IN_PROGRESS here for a broken broker and throws it at the application."""
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        code = ErrorCode.REBALANCE_IN_PROGRESS
    return SyncGroupResponse(error_code=code)
