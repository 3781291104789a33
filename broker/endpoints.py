"""Which address a client is told to use for a broker.

A client may only be sent to endpoints of the listener it came through: another listener may lie in a network that it
cannot reach. With advertised.listeners unset, our own address is the one the client just reached us by, which is
right behind any interface and needs no configuration; a wildcard such as 0.0.0.0 is never handed out.
"""

from __future__ import annotations

from typing import NamedTuple

from broker.api import RequestContext
from controller.image import BrokerImage, MetadataImage

_MAPPED_IPV4 = "::ffff:"


class NodeAddress(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


def advertised_endpoint(registered: BrokerImage, ctx: RequestContext) -> NodeAddress | None:
    """Where clients of `ctx.listener` reach the broker; None if it has no such listener."""
    endpoint = registered.endpoints.get(ctx.listener.name)
    if endpoint is None:
        return None
    host, port = endpoint.host, endpoint.port
    if registered.id == ctx.broker.node_id and not ctx.broker.config.advertised_listeners:
        host, port = _reached_address(ctx)
    return NodeAddress(registered.id, host, port, registered.rack)


def node_endpoint(ctx: RequestContext, node_id: int) -> NodeAddress | None:
    registered = ctx.broker.image.brokers.get(node_id)
    return None if registered is None else advertised_endpoint(registered, ctx)


def alive_nodes(image: MetadataImage, ctx: RequestContext) -> list[NodeAddress]:
    """The brokers that clients of this listener may be sent to, in the order of their ids."""
    alive = (b for _, b in sorted(image.brokers.items()) if is_alive(b, ctx.listener.name))
    return [node for node in (advertised_endpoint(broker, ctx) for broker in alive) if node is not None]


def _reached_address(ctx: RequestContext) -> tuple[str, int]:
    """A socket bound to :: shows the address that an IPv4 client connected to as ::ffff:a.b.c.d."""
    host, port = ctx.local_address
    if host.startswith(_MAPPED_IPV4) and "." in host:
        host = host[len(_MAPPED_IPV4) :]
    return host, port


def is_alive(registered: BrokerImage, listener: str) -> bool:
    """Whether the broker may be shown to clients of the listener: unfenced, and reachable through it."""
    return not registered.fenced and listener in registered.endpoints


def controller_node(image: MetadataImage, ctx: RequestContext) -> int:
    """The node that clients take for the controller (KIP-595 hides the real one): any broker, as each forwards.

    This broker, while it is alive: the client has a connection to it already.
    """
    own = image.brokers.get(ctx.broker.node_id)
    if own is not None and is_alive(own, ctx.listener.name):
        return own.id
    return next((b.id for b in image.brokers.values() if is_alive(b, ctx.listener.name)), -1)
