"""The connection layer: sockets, framing, dispatch, ordered responses, back-pressure.

It knows handlers only through `broker.api` and sends whatever parts a response has. Neither topics nor logs nor
groups belong here.
"""

from broker.network.counters import NetworkCounters
from broker.network.server import SocketServer
from broker.network.settings import NetworkSettings

__all__ = ["NetworkCounters", "NetworkSettings", "SocketServer"]
