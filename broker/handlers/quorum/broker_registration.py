"""BrokerRegistration (62), versions 0 to 4.

1 migration from ZooKeeper · 2 log directories (KIP-858) · 3 the epoch of a clean stop (KIP-966) · 4 features from 0.
"""

from __future__ import annotations

from broker.api import RequestContext, controller_handler
from protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse


@controller_handler(BrokerRegistrationRequest)
async def broker_registration(ctx: RequestContext, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
    return await ctx.broker.controller.on_broker_registration(request, api_version=ctx.api_version)
