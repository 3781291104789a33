"""From a shard's answer to a response: at once where there is nothing to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from broker.api import RequestContext
from broker.coordinator.group.base import Client
from broker.coordinator.shard import Answer, Write
from protocol.errors import ApiError, ErrorCode

R = TypeVar("R")


def client_of(ctx: RequestContext) -> Client:
    """Kafka shows a host as Java prints an address: behind a slash. No client id counts as an empty one."""
    host = ctx.peer.rpartition(":")[0].strip("[]")
    return Client(ctx.client_id or "", f"/{host}", ctx.api_version)


def respond(
    ctx: RequestContext,
    group_id: str,
    operation: Write,
    refuse: Callable[[ErrorCode], R],
    shape: Callable[[Any], R] | None = None,
    *,
    writes: bool = True,
) -> R | Awaitable[R]:
    """Hands a request to the group's shard. `refuse` makes the response where there is no shard to answer.

    `writes`: it changes what is stored, and has no use while that cannot be committed.
    """
    groups = ctx.broker.groups
    ask = groups.write if writes else groups.ask
    return respond_with(lambda: ask(group_id, operation), refuse, shape)


def respond_with(
    ask: Callable[[], Answer], refuse: Callable[[ErrorCode], R], shape: Callable[[Any], R] | None = None
) -> R | Awaitable[R]:
    try:
        answer = ask()
    except ApiError as error:
        return refuse(error.code)
    if answer.done():
        return _outcome(answer, refuse, shape)
    return _shaped(answer, refuse, shape)


def _shaped(answer: Answer, refuse: Callable[[ErrorCode], R], shape: Callable[[Any], R] | None) -> asyncio.Future[R]:
    """A future of the response. Not a coroutine: hundreds of members wait for one rebalance, and a task for each costs
    more than what it waits for. If the connection gives up, so does the answer."""
    response: asyncio.Future[R] = answer.get_loop().create_future()

    def on_answer(_: Answer) -> None:
        if response.done():
            return
        if answer.cancelled():
            response.cancel()
            return
        try:
            response.set_result(_outcome(answer, refuse, shape))
        except Exception as error:
            response.set_exception(error)

    def on_response(_: asyncio.Future[R]) -> None:
        if response.cancelled():
            answer.cancel()

    answer.add_done_callback(on_answer)
    response.add_done_callback(on_response)
    return response


def _outcome(answer: Answer, refuse: Callable[[ErrorCode], R], shape: Callable[[Any], R] | None) -> R:
    error = answer.exception()
    if error is None:
        return answer.result() if shape is None else shape(answer.result())
    if isinstance(error, ApiError):
        return refuse(error.code)
    raise error
