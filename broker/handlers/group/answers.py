"""From a shard's answer to a response: at once where there is nothing to wait for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from broker.api import RequestContext
from broker.coordinator.effects import Effects
from broker.coordinator.group.base import Client
from broker.coordinator.group.core import GroupCoordinator
from broker.coordinator.shard import Answer
from protocol.errors import ApiError, ErrorCode

R = TypeVar("R")

Operation = Callable[[GroupCoordinator, int, object], Effects]


def client_of(ctx: RequestContext) -> Client:
    """Kafka shows a host as Java prints an address: behind a slash. No client id counts as an empty one."""
    host = ctx.peer.rpartition(":")[0].strip("[]")
    return Client(ctx.client_id or "", f"/{host}", ctx.api_version)


def respond(
    ctx: RequestContext,
    group_id: str,
    operation: Operation,
    refuse: Callable[[ErrorCode], R],
    shape: Callable[[Any], R] | None = None,
) -> R | Awaitable[R]:
    """Hands a request to the group's shard. `refuse` makes the response where there is no shard to answer."""
    try:
        answer = ctx.broker.groups.write(group_id, operation)
    except ApiError as error:
        return refuse(error.code)
    if answer.done():
        return _outcome(answer, refuse, shape)
    return _wait(answer, refuse, shape)


async def _wait(answer: Answer, refuse: Callable[[ErrorCode], R], shape: Callable[[Any], R] | None) -> R:
    try:
        response = await answer
    except ApiError as error:
        return refuse(error.code)
    return response if shape is None else shape(response)


def _outcome(answer: Answer, refuse: Callable[[ErrorCode], R], shape: Callable[[Any], R] | None) -> R:
    error = answer.exception()
    if error is None:
        return answer.result() if shape is None else shape(answer.result())
    if isinstance(error, ApiError):
        return refuse(error.code)
    raise error
