"""The recipe of a request handler: registration, context, and what a handler may return.

A handler is a plain function registered beside its definition:

    @handler(CreateTopicsRequest)
    async def create_topics(ctx: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse: ...

It returns a response message, an awaitable of one where it has to wait, or None where the protocol
wants no response (Produce with acks=0). The connection encodes and writes responses in request order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from protocol.schema import Message

if TYPE_CHECKING:
    from broker.network.transport import Part
    from broker.server import Broker
    from config.broker import Listener

ANONYMOUS = "User:ANONYMOUS"

Response = Message | None
HandlerResult = Response | Awaitable[Response]
HandlerFunction = Callable[["RequestContext", Any], HandlerResult]

_Handler = TypeVar("_Handler", bound=Callable[..., Any])


class RequestContext:
    """Who asks, how, and through which door. One per request, so it stays small."""

    __slots__ = (
        "api_key",
        "api_version",
        "broker",
        "client_id",
        "close_connection",
        "correlation_id",
        "listener",
        "local_address",
        "peer",
        "principal",
    )

    def __init__(
        self,
        broker: Broker,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        *,
        peer: str,
        listener: Listener,
        local_address: tuple[str, int],
        close_connection: Callable[[str], None],
        principal: str = ANONYMOUS,
    ) -> None:
        self.broker = broker
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.principal = principal
        self.peer = peer
        """The client's "host:port", for log lines."""
        self.listener = listener
        self.local_address = local_address
        """The address the client connected to; advertised to it when advertised.listeners is unset."""
        self.close_connection = close_connection
        """Called with the reason. Produce with acks=0 has no other way to tell of a failure."""


class Repeat(Protocol):
    """A shorter way for requests that repeat an earlier one of the same connection in all but their payload."""

    is_stale: bool

    def answer(self, frame: memoryview) -> list[Part] | None:
        """The response frame, or None if this request is not such a one."""


class Repetition(NamedTuple):
    """How an API offers that way. The connection asks for it when two requests in a row were alike."""

    common: Callable[[RequestContext, memoryview, Any], object]
    """What two requests must share to be alike; None if this one is not worth it."""
    make: Callable[[RequestContext, Any, Any], Repeat | None]
    """The way for requests with that in common, made from the last of them; None if there is none at present."""


class HandlerEntry(NamedTuple):
    """One served API. ApiVersions is derived from these, so what is listed is what works."""

    request: type[Message]
    function: HandlerFunction
    min_version: int
    max_version: int
    advertised_min_version: int
    """May be lower than min_version: KAFKA-18659, librdkafka wants to see Produce from version 0 on."""
    repetition: Repetition | None = None


HANDLERS: dict[int, HandlerEntry] = {}
"""What brokers serve, and controllers as far as the API is one of theirs."""

CONTROLLER_HANDLERS: dict[int, HandlerEntry] = {}
"""What controllers alone serve, or serve otherwise than brokers (Fetch)."""


def handler(
    request: type[Message],
    *,
    min_version: int | None = None,
    max_version: int | None = None,
    advertised_min_version: int | None = None,
    repetition: Repetition | None = None,
) -> Callable[[_Handler], _Handler]:
    """Registers a handler for all stable versions of `request`, or for those between the given ones."""
    return _register(HANDLERS, request, min_version, max_version, advertised_min_version, repetition)


def controller_handler(request: type[Message]) -> Callable[[_Handler], _Handler]:
    """The same for an API that controllers serve on their own listeners, between the nodes of a cluster."""
    return _register(CONTROLLER_HANDLERS, request, None, None, None, None)


def _register(
    handlers: dict[int, HandlerEntry],
    request: type[Message],
    min_version: int | None,
    max_version: int | None,
    advertised_min_version: int | None,
    repetition: Repetition | None,
) -> Callable[[_Handler], _Handler]:
    lowest = request.MIN_VERSION if min_version is None else min_version
    stable = request.MAX_VERSION - 1 if request.UNSTABLE else request.MAX_VERSION
    highest = stable if max_version is None else max_version

    def register(function: _Handler) -> _Handler:
        key = request.API_KEY
        if key in handlers:
            raise RuntimeError(f"two handlers for {request.__name__}: {handlers[key].function} and {function}")
        advertised = lowest if advertised_min_version is None else advertised_min_version
        handlers[key] = HandlerEntry(request, function, lowest, highest, advertised, repetition)
        return function

    return register
