"""The driver's way to its peers: this node's client connections, in the words of the controller's layer."""

from __future__ import annotations

from broker.network.client import CallFailed, ConnectionRefused, NodeClients, UnsupportedByPeer
from controller.raft_calls import PeerGone, PeerTooOld, PeerUnavailable
from protocol.messages.fetch import FetchRequest
from protocol.messages.fetch_snapshot import FetchSnapshotRequest
from protocol.schema import Message


class QuorumPeers:
    def __init__(self, clients: NodeClients) -> None:
        self._clients = clients

    async def call(self, host: str, port: int, request: Message, timeout_ms: float) -> Message:
        lane = "fetch" if isinstance(request, (FetchRequest, FetchSnapshotRequest)) else "raft"
        try:
            return await self._clients.call(host, port, request, timeout_ms, lane=lane)
        except UnsupportedByPeer as error:
            raise PeerTooOld(str(error)) from None
        except ConnectionRefused as error:
            raise PeerGone(str(error)) from None
        except CallFailed as error:
            raise PeerUnavailable(str(error)) from None
