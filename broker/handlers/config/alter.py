"""AlterConfigs (33), versions 0 to 2.

2 flexible. It replaces all settings of a resource, which loses those that two clients change at once; that is why
IncrementalAlterConfigs exists (KIP-339).
"""

from __future__ import annotations

from typing import Any

from broker.api import RequestContext, handler
from broker.handlers.config.resources import LEGACY_ALTERABLE, check_alterable, key_of, repeated
from controller.configs import Change, Operation
from controller.image import ConfigResource
from protocol.errors import ApiError
from protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


@handler(AlterConfigsRequest)
async def alter_configs(ctx: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    answers: dict[ConfigResource, AlterConfigsResourceResponse] = {}
    forwarded: list[AlterConfigsResource] = []
    twice = repeated(request.resources)
    for resource in request.resources:
        try:
            changes = [Change(one.name, Operation.SET, one.value) for one in resource.configs]
            check_alterable(ctx, resource, changes, twice, LEGACY_ALTERABLE)
            forwarded.append(resource)
        except ApiError as error:
            answers[key_of(resource)] = AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=error.message or None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
    if forwarded:
        rest = AlterConfigsRequest(resources=forwarded, validate_only=request.validate_only)
        made: Any = await ctx.broker.forwarding.decide(
            ctx, rest, lambda: ctx.broker.controller.alter_configs(rest, principal=ctx.principal)
        )
        answers.update((key_of(answer), answer) for answer in made.responses)
    return AlterConfigsResponse(responses=[answers[key_of(resource)] for resource in request.resources])
