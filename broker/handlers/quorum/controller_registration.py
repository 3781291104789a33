"""ControllerRegistration (70), version 0 (KIP-919)."""

from __future__ import annotations

from broker.api import RequestContext, controller_handler
from protocol.messages.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse


@controller_handler(ControllerRegistrationRequest)
async def controller_registration(
    ctx: RequestContext, request: ControllerRegistrationRequest
) -> ControllerRegistrationResponse:
    return await ctx.broker.controller.on_controller_registration(request)
