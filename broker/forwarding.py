"""Administrative requests, which any broker takes and the active controller decides.

In the process of the controller the decision is a call; elsewhere the request goes out in an envelope, and the answer
comes back as if it had been given here. What cannot be had in time is REQUEST_TIMED_OUT, and nothing else: whether a
change was made after all is then for the client to look up, as with Apache Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, cast

from broker.api import ANONYMOUS, HandlerEntry, RequestContext
from broker.controller_channel import ControllerChannel
from broker.envelopes import open_response, seal
from controller import refusals
from protocol.errors import ApiError, DecodeError, ErrorCode
from protocol.messages import response_class
from protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from protocol.messages.envelope import EnvelopeResponse
from protocol.schema import Message

if TYPE_CHECKING:
    from broker.server import Broker
    from config.addresses import Listener

log = logging.getLogger(__name__)

LANE: Final = "forwarding"

# CreateTopics, DeleteTopics, CreateAcls, DeleteAcls, CreatePartitions, the delegation tokens but their description,
# ElectLeaders, reassignments, AlterClientQuotas, AlterUserScramCredentials, DescribeQuorum, UpdateFeatures,
# UnregisterBroker, AddRaftVoter, RemoveRaftVoter. Changes of configurations are forwarded by their handlers.
FORWARDED: Final = frozenset({19, 20, 30, 31, 37, 38, 39, 40, 43, 45, 46, 49, 51, 55, 57, 64, 80, 81})


class Forwarding:
    def __init__(self, broker: Broker, channel: ControllerChannel, request_timeout_ms: int) -> None:
        self._broker = broker
        self._channel = channel
        self._timeout_ms = request_timeout_ms

    async def decide(self, ctx: RequestContext, request: Message, locally: Callable[[], Awaitable[Message]]) -> Message:
        """The active controller's response. On a controller's own listener nothing is passed on: who asks there looks
        for the controller himself."""
        if ctx.listener.name in self._broker.config.controller_listener_names:
            return await locally()
        timeout_ms = min(getattr(request, "timeout_ms", self._timeout_ms) or self._timeout_ms, self._timeout_ms)
        try:
            answer = await self._channel.ask(seal(ctx, request), locally, timeout_ms=max(timeout_ms, 1), lane=LANE)
        except ApiError as error:
            return refuse(request, error)
        if not isinstance(answer, EnvelopeResponse):
            return answer
        if answer.error_code != ErrorCode.NONE or answer.response_data is None:
            log.warning("The controller refused a forwarded %s with %s", type(request).__name__, answer.error_code)
            return refuse(request, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))
        try:
            return open_response(ctx, request, bytes(answer.response_data))
        except DecodeError as error:
            log.warning("The controller's answer to a forwarded %s is useless: %s", type(request).__name__, error)
            return refuse(request, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))

    async def create_topics(self, request: CreateTopicsRequest, *, principal: str = ANONYMOUS) -> CreateTopicsResponse:
        """Topics that this broker wants for a client: of the coordinators, and those that are created on first use."""
        ctx = self._own_context(request, principal)
        controller = self._broker.controller
        answer = await self.decide(ctx, request, lambda: controller.create_topics(request, principal=principal))
        return cast(CreateTopicsResponse, answer)

    def _own_context(self, request: Message, principal: str) -> RequestContext:
        listener: Listener = self._broker.bound_listeners[0]
        return RequestContext(
            self._broker,
            request.API_KEY,
            request.MAX_VERSION,
            0,
            f"broker-{self._broker.node_id}",
            peer="",
            listener=listener,
            local_address=(listener.host, listener.port),
            close_connection=lambda reason: None,
            principal=principal,
        )


def forwarded(entry: HandlerEntry) -> HandlerEntry:
    """The same API on a broker's listener: decided by the controller, wherever that is."""

    async def forward(ctx: RequestContext, request: Message) -> Any:
        async def locally() -> Message:
            result: Any = entry.function(ctx, request)
            return cast(Message, await result if isawaitable(result) else result)

        return await ctx.broker.forwarding.decide(ctx, request, locally)

    return entry._replace(function=forward)


_REFUSALS: Final[dict[int, Callable[[Any, ApiError], Message]]] = {
    19: refusals.refuse_create_topics,
    20: refusals.refuse_delete_topics,
    33: refusals.refuse_alter_configs,
    37: refusals.refuse_create_partitions,
    44: refusals.refuse_incremental_alter_configs,
}


def refuse(request: Message, error: ApiError) -> Message:
    """A response that says the same of every part that was asked for, if it has no place for the whole."""
    refusal = _REFUSALS.get(request.API_KEY)
    if refusal is not None:
        return refusal(request, error)
    response: Any = response_class(request.API_KEY)()
    response.error_code = error.code
    if hasattr(response, "error_message"):
        response.error_message = error.message or None
    return cast(Message, response)
