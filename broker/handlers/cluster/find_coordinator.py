"""FindCoordinator (10), versions 0 to 6.

1 key types, error messages · 3 flexible · 4 several keys at once (KIP-699) · 6 share groups (KIP-932).

Neither a transaction nor a share coordinator runs in this broker yet, so their keys get COORDINATOR_NOT_AVAILABLE: a
client goes on asking, as it does while a coordinator moves.
"""

from __future__ import annotations

from collections.abc import Awaitable

from broker.api import RequestContext, handler
from broker.endpoints import NodeAddress, node_endpoint
from broker.internal_topics import OFFSETS_TOPIC
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from protocol.uuids import Uuid

GROUP = 0
TRANSACTION = 1
SHARE = 2

FIRST_VERSION_WITH_KEYS = 4
FIRST_VERSION_WITH_SHARE = 6

_NO_NODE = NodeAddress(-1, "", -1, None)


@handler(FindCoordinatorRequest)
def find_coordinator(
    ctx: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    """The first who looks for a group coordinator waits until `__consumer_offsets` was created."""
    if request.key_type == GROUP and OFFSETS_TOPIC not in ctx.broker.image.topics_by_name:
        return _create_then_answer(ctx, request)
    return _answer(ctx, request)


async def _create_then_answer(ctx: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    await ctx.broker.groups.ensure_topic(ctx.broker.forwarding, ctx.principal)
    return _answer(ctx, request)


def _answer(ctx: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if ctx.api_version < FIRST_VERSION_WITH_KEYS:
        code, node = _find(ctx, request.key_type, request.key)
        text = None if code else code.name  # Kafka's clients expect no text where all is well, and get one
        return FindCoordinatorResponse(
            error_code=code, error_message=text, node_id=node.node_id, host=node.host, port=node.port
        )
    found = [(key, *_find(ctx, request.key_type, key)) for key in request.coordinator_keys]
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(
                key=key,
                node_id=node.node_id,
                host=node.host,
                port=node.port,
                error_code=code,
                error_message="",
            )
            for key, code, node in found
        ]
    )


def _find(ctx: RequestContext, key_type: int, key: str) -> tuple[ErrorCode, NodeAddress]:
    if key_type == GROUP:
        leader = ctx.broker.groups.leader_of(key)
        node = None if leader is None else node_endpoint(ctx, leader)
        return (ErrorCode.COORDINATOR_NOT_AVAILABLE, _NO_NODE) if node is None else (ErrorCode.NONE, node)
    if key_type == TRANSACTION:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, _NO_NODE
    if key_type == SHARE and ctx.api_version >= FIRST_VERSION_WITH_SHARE and _is_share_key(key):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, _NO_NODE
    return ErrorCode.INVALID_REQUEST, _NO_NODE


def _is_share_key(key: str) -> bool:
    """A share coordinator is found by group:topic id:partition."""
    group, _, rest = key.partition(":")
    topic_id, _, partition = rest.partition(":")
    try:
        Uuid.parse(topic_id)
        int(partition)
    except ValueError:
        return False
    return bool(group)
