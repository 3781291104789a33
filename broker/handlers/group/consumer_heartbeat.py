"""ConsumerGroupHeartbeat (68), versions 0 and 1 (KIP-848).

1 member ids made by the client, subscription by regular expression.
"""

from __future__ import annotations

from collections.abc import Awaitable

from broker.api import RequestContext, handler
from broker.coordinator.group.consumer.member import JOIN_EPOCH
from broker.handlers.group.answers import client_of, respond
from broker.handlers.group.protocols import is_consumer_protocol_enabled
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse


@handler(ConsumerGroupHeartbeatRequest)
def consumer_group_heartbeat(
    ctx: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    """Only who joins or leaves is sure to change the group; the others mostly say that they are there."""
    if not is_consumer_protocol_enabled(ctx):
        return _refuse(ErrorCode.UNSUPPORTED_VERSION)
    client = client_of(ctx)
    return respond(
        ctx,
        request.group_id,
        lambda core, now, token: core.consumer_group_heartbeat(now, token, request, client),
        _refuse,
        writes=request.member_epoch <= JOIN_EPOCH,
    )


def _refuse(code: ErrorCode) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code)
