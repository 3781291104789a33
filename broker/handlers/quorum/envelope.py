"""Envelope (58), version 0 (KIP-590): a request that a broker passes on, with the identity of its client.

The embedded request is handled as if the client had asked here. A node that is not the active controller says so in
the envelope, so that the broker looks for the one that is.
"""

from __future__ import annotations

import ipaddress
from inspect import isawaitable
from typing import Any, cast

from broker.api import RequestContext, controller_handler
from broker.controller_channel import denies_being_controller
from broker.envelopes import decode_principal
from broker.forwarding import FORWARDED
from broker.network.routes import Router
from protocol.errors import DecodeError, ErrorCode
from protocol.header import parse_request_header
from protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from protocol.schema import Message

CONFIG_CHANGES = frozenset({33, 44})  # AlterConfigs and IncrementalAlterConfigs, after the broker's own checks


@controller_handler(EnvelopeRequest)
async def envelope(ctx: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse:
    try:
        principal = ctx.principal if request.request_principal is None else decode_principal(request.request_principal)
    except DecodeError:
        return EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
    try:
        peer = str(ipaddress.ip_address(bytes(request.client_host_address)))
        data = bytes(request.request_data)
        key, version, correlation_id, client_id, offset = parse_request_header(memoryview(data))
        if key not in FORWARDED and key not in CONFIG_CHANGES:
            return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        router: Router = ctx.broker.controller_router
        try:
            route = router.find(key, version)
        except DecodeError:
            return EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        embedded = route.decode(data, offset)
    except (DecodeError, ValueError):
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    inner = RequestContext(
        ctx.broker,
        key,
        version,
        correlation_id,
        client_id,
        peer=f"{peer}:0",
        listener=ctx.listener,
        local_address=ctx.local_address,
        close_connection=ctx.close_connection,
        principal=principal,
    )
    result: Any = route.function(inner, embedded)
    response = cast(Message, await result if isawaitable(result) else result)
    if denies_being_controller(response):
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    frame = b"".join(bytes(part) for part in route.encode(correlation_id, response))  # type: ignore[arg-type]
    return EnvelopeResponse(response_data=frame[4:])
