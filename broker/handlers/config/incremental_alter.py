"""IncrementalAlterConfigs (44), versions 0 and 1 (KIP-339).

1 flexible. Loggers are changed here; everything else is the controller's, after the checks that only this broker can
make.
"""

from __future__ import annotations

from typing import Any

from broker.api import RequestContext, handler
from broker.handlers.config.logger_changes import alter_loggers
from broker.handlers.config.resources import ALTERABLE, check_alterable, key_of, repeated
from controller.configs import Change
from controller.image import RESOURCE_BROKER_LOGGER, ConfigResource
from protocol.errors import ApiError
from protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


@handler(IncrementalAlterConfigsRequest)
async def incremental_alter_configs(
    ctx: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    answers: dict[ConfigResource, AlterConfigsResourceResponse] = {}
    forwarded: list[AlterConfigsResource] = []
    twice = repeated(request.resources)
    for resource in request.resources:
        try:
            changes = [Change(one.name, one.config_operation, one.value) for one in resource.configs]
            check_alterable(ctx, resource, changes, twice, ALTERABLE)
            if resource.resource_type == RESOURCE_BROKER_LOGGER:
                alter_loggers(resource.configs, validate_only=request.validate_only)
                answers[key_of(resource)] = _answer(resource)
            else:
                forwarded.append(resource)
        except ApiError as error:
            answers[key_of(resource)] = _answer(resource, error)
    if forwarded:
        rest = IncrementalAlterConfigsRequest(resources=forwarded, validate_only=request.validate_only)
        made: Any = await ctx.broker.forwarding.decide(
            ctx, rest, lambda: ctx.broker.controller.incremental_alter_configs(rest, principal=ctx.principal)
        )
        answers.update((key_of(answer), answer) for answer in made.responses)
    return IncrementalAlterConfigsResponse(responses=[answers[key_of(resource)] for resource in request.resources])


def _answer(resource: AlterConfigsResource, error: ApiError | None = None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=0 if error is None else error.code,
        error_message=None if error is None else error.message or None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
