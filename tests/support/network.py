"""A socket server with handlers of a test's own, and a client that speaks frames."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from broker.api import HandlerEntry, HandlerFunction
from broker.network import NetworkSettings, SocketServer
from config.addresses import Listener
from protocol.header import encode_request
from protocol.schema import Message

if TYPE_CHECKING:
    from broker.server import Broker

LOOPBACK = Listener("PLAINTEXT", "127.0.0.1", 0, "PLAINTEXT")
PATIENCE_S = 10
"""How long a test waits for what must happen; reached only when it fails."""


class FakeClock:
    """Time stands still until the test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def entry(
    request: type[Message], function: HandlerFunction, min_version: int | None = None
) -> tuple[int, HandlerEntry]:
    lowest = request.MIN_VERSION if min_version is None else min_version
    return request.API_KEY, HandlerEntry(request, function, lowest, request.MAX_VERSION, lowest)


@asynccontextmanager
async def running_server(
    handlers: Mapping[int, HandlerEntry],
    settings: NetworkSettings | None = None,
    *,
    listener: Listener = LOOPBACK,
    clock: Callable[[], float] | None = None,
) -> AsyncIterator[SocketServer]:
    options: dict[str, Any] = {} if clock is None else {"clock": clock}
    no_broker = cast("Broker", None)  # these handlers have no use for one
    server = SocketServer(no_broker, [listener], settings or NetworkSettings(), handlers=handlers, **options)
    server.bind()
    server.start()
    try:
        yield server
    finally:
        await server.shutdown(0)


async def until(condition: Callable[[], bool], what: str) -> None:
    """Polls: what a test waits for here is the state of the server's own objects, which announce nothing."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        await asyncio.sleep(0.001)


class FrameClient:
    """One connection. Reads nothing unless asked, so that a test can be the slow reader."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.loop = asyncio.get_running_loop()
        self._buffer = bytearray()

    @classmethod
    async def connect(cls, server: SocketServer, *, receive_buffer: int = 0) -> FrameClient:
        sock = socket.socket()
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", server.bound[0].port))
        return cls(sock)

    async def send_raw(self, data: bytes) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self.loop.sock_sendall(self.socket, data)

    async def send(
        self, request: Message, version: int, correlation_id: int = 1, client_id: str | None = "test"
    ) -> None:
        body = request.encode(version)
        await self.send_raw(encode_request(request.API_KEY, version, correlation_id, client_id, body))

    async def _read_exactly(self, count: int) -> bytes:
        while len(self._buffer) < count:
            data = await self.loop.sock_recv(self.socket, 1 << 18)
            if not data:
                raise EOFError
            self._buffer += data
        found = bytes(self._buffer[:count])
        del self._buffer[:count]
        return found

    async def receive(self) -> tuple[int, bytes]:
        """Correlation id, and what follows it: the rest of the header and the body."""
        async with asyncio.timeout(PATIENCE_S):
            size, correlation_id = struct.unpack(">ii", await self._read_exactly(8))
            return correlation_id, await self._read_exactly(size - 4)

    async def is_closed_by_server(self) -> bool:
        """True once the server closed the connection; fails the test if it answers instead or does nothing."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                data = await self.loop.sock_recv(self.socket, 1)
            except ConnectionResetError:
                return True
            return data == b""

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Vanishes without a goodbye: the peer sees a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()
