"""The other direction: this node as a client of another, for Raft peers, for the controller, for replication.

One connection per node, opened when it is first needed. Requests are pipelined; each has its own deadline. Whoever
calls hears either the decoded response or `CallFailed`, never a hang: a lost connection fails all that is under way,
and the next call opens another one, at the earliest after a back-off that grows while the node does not answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from typing import Final, cast

from protocol.errors import DecodeError, EncodeError, ErrorCode
from protocol.header import encode_request, response_header_version
from protocol.messages import API_NAMES, response_class
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.schema import Message
from protocol.varint import decode_uvarint

log = logging.getLogger(__name__)

HANDSHAKE_VERSION: Final = 3  # every broker since 2.4 answers it, and no older one has a metadata quorum
SOFTWARE_NAME: Final = "barnabas"
SOFTWARE_VERSION: Final = "0.1.0"
MAX_RESPONSE_BYTES: Final = 100 << 20
"""A larger frame is not Kafka's protocol, or not sane: Kafka's own default of socket.request.max.bytes."""
SMALL_BUFFER_BYTES: Final = 16 << 10  # most answers are some hundred bytes
FIRST_BACKOFF_S: Final = 0.05  # Kafka's between controllers: 50 to 500 ms
MAX_BACKOFF_S: Final = 0.5
CONNECT_TIMEOUT_S: Final = 5.0

_SIZE = struct.Struct(">i")


class CallFailed(Exception):
    """No response: no connection, a lost one, a time-out, or a peer that does not serve the API."""


class ConnectionRefused(CallFailed):
    """Nobody listens at the address: the process is not there."""


class UnsupportedByPeer(CallFailed):
    """The peer answers, but does not serve the API in a version that this node speaks."""


class _Wire(asyncio.BufferedProtocol):
    """Frames on one connection. Owned by `NodeClient`; never outlives its socket.

    Bytes arrive in a small buffer. A frame that does not fit there, a leader's records say, gets a buffer of its own
    as soon as its size is known, and the rest of it is received there.
    """

    def __init__(self, description: str) -> None:
        self.description = description
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport | None = None
        self._small = bytearray(SMALL_BUFFER_BYTES)
        self._large: bytearray | None = None
        self._filled = 0
        """Of the large buffer if there is one, else of the small one."""
        self._waiting: dict[int, asyncio.Future[bytearray]] = {}
        self._next_correlation_id = 0

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._small if self._large is None else self._large)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        large = self._large
        if large is None:
            self._take_small_frames()
        elif self._filled == len(large):
            self._large, self._filled = None, 0
            self._deliver(large)

    def _take_small_frames(self) -> None:
        buffer, filled, position = self._small, self._filled, 0
        while filled - position >= 4:
            (size,) = _SIZE.unpack_from(buffer, position)
            if not 4 <= size <= MAX_RESPONSE_BYTES:
                self._abort(f"it sent a frame of {size} bytes")
                return
            end = position + 4 + size
            if end > filled:
                if 4 + size > len(buffer):
                    self._large = bytearray(size)
                    self._filled = filled - position - 4
                    self._large[: self._filled] = memoryview(buffer)[position + 4 : filled]
                    return
                break
            self._deliver(buffer[position + 4 : end])
            position = end
        self._filled = filled - position
        if position and self._filled:
            buffer[: self._filled] = buffer[position:filled]

    def _deliver(self, frame: bytearray) -> None:
        (correlation_id,) = _SIZE.unpack_from(frame)
        waiter = self._waiting.pop(correlation_id, None)
        if waiter is not None and not waiter.done():  # else its caller gave up: the answer is late, not wrong
            waiter.set_result(frame)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        reason = CallFailed(f"the connection to {self.description} was lost{f': {error}' if error else ''}")
        waiting, self._waiting = self._waiting, {}
        for waiter in waiting.values():
            if not waiter.done():
                waiter.set_exception(reason)
        if not self.closed.done():
            self.closed.set_result(None)

    def send(self, api_key: int, version: int, client_id: str, body: bytes) -> tuple[int, asyncio.Future[bytearray]]:
        transport = self._transport
        if transport is None or transport.is_closing():
            raise CallFailed(f"the connection to {self.description} was lost")
        self._next_correlation_id = (self._next_correlation_id + 1) & 0x7FFFFFFF
        correlation_id = self._next_correlation_id
        waiter: asyncio.Future[bytearray] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = waiter
        transport.write(encode_request(api_key, version, correlation_id, client_id, body))
        return correlation_id, waiter

    def forget(self, correlation_id: int) -> None:
        self._waiting.pop(correlation_id, None)

    def _abort(self, reason: str) -> None:
        log.warning("Connection to %s closed: %s", self.description, reason)
        self.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class NodeClient:
    """The connection to one address. All methods run on the loop."""

    def __init__(self, host: str, port: int, *, client_id: str, receive_buffer_bytes: int = -1) -> None:
        self.host = host
        self.port = port
        self._client_id = client_id
        self._receive_buffer_bytes = receive_buffer_bytes
        self._wire: _Wire | None = None
        self._versions: dict[int, tuple[int, int]] = {}
        self._connecting: asyncio.Task[_Wire] | None = None
        self._backoff_s = 0.0
        self._not_before = 0.0
        self._closed = False

    def __repr__(self) -> str:
        return f"NodeClient({self.description})"

    @property
    def description(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    async def call(self, request: Message, timeout_ms: float, *, version: int | None = None) -> Message:
        """The response, decoded at the highest version that both sides speak. Raises CallFailed."""
        wire = None
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                wire = await self._connected()
                return await self._exchange(wire, request, self._version_of(request, version))
        except TimeoutError:
            if wire is not None:
                wire.close()  # a peer that hangs, or a network that drops: what is behind it would wait for ever
            raise CallFailed(f"{self.description} did not answer within {timeout_ms:.0f} ms") from None

    def _version_of(self, request: Message, wanted: int | None) -> int:
        key = request.API_KEY
        own_highest = request.MAX_VERSION - 1 if request.UNSTABLE else request.MAX_VERSION
        if wanted is not None:
            own_highest = min(own_highest, wanted)
        theirs = self._versions.get(key)
        if theirs is None:
            raise UnsupportedByPeer(f"{self.description} does not serve {API_NAMES[key]}")
        lowest, highest = max(theirs[0], request.MIN_VERSION), min(theirs[1], own_highest)
        if lowest > highest:
            raise UnsupportedByPeer(
                f"{self.description} serves {API_NAMES[key]} {theirs[0]} to {theirs[1]}, this node "
                f"{request.MIN_VERSION} to {own_highest}"
            )
        return highest

    async def _exchange(self, wire: _Wire, request: Message, version: int) -> Message:
        key = request.API_KEY
        try:
            body = request.encode(version)
        except EncodeError as error:
            raise UnsupportedByPeer(f"{self.description} cannot be told: {error}") from None
        correlation_id, waiter = wire.send(key, version, self._client_id, body)
        try:
            frame = await waiter
        finally:
            wire.forget(correlation_id)
        try:
            position = 4
            if response_header_version(key, version):
                count, position = decode_uvarint(memoryview(frame), position)
                for _ in range(count):
                    _, position = decode_uvarint(memoryview(frame), position)
                    size, position = decode_uvarint(memoryview(frame), position)
                    position += size
            return response_class(key).decode(frame, version, position)
        except DecodeError as error:
            wire.close()
            raise CallFailed(f"the answer of {self.description} cannot be read: {error}") from None

    # The connection.

    async def _connected(self) -> _Wire:
        if self._closed:
            raise CallFailed(f"the client of {self.description} is closed")
        if self._wire is not None and self._wire.is_open:
            return self._wire
        if self._connecting is None:
            self._connecting = asyncio.create_task(self._connect(), name=f"connect to {self.description}")
            self._connecting.add_done_callback(self._on_connected)
        return await asyncio.shield(self._connecting)

    def _on_connected(self, task: asyncio.Task[_Wire]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # every caller got it; there may be none left

    async def _connect(self) -> _Wire:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(self._not_before - loop.time(), 0))
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                wire = await self._open(loop)
        except (OSError, TimeoutError, CallFailed) as error:
            self._backoff_s = min(max(self._backoff_s * 2, FIRST_BACKOFF_S), MAX_BACKOFF_S)
            self._not_before = loop.time() + self._backoff_s
            if isinstance(error, CallFailed):
                raise
            if isinstance(error, ConnectionRefusedError):
                raise ConnectionRefused(f"nobody listens at {self.description}") from None
            raise CallFailed(f"no connection to {self.description}: {error or 'it did not answer'}") from None
        self._backoff_s = 0.0
        self._wire = wire
        return wire

    async def _open(self, loop: asyncio.AbstractEventLoop) -> _Wire:
        transport, wire = await loop.create_connection(lambda: _Wire(self.description), self.host, self.port)
        try:
            if self._receive_buffer_bytes >= 0:
                connected = transport.get_extra_info("socket")
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
            hello = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION)
            answer = await self._exchange(wire, hello, HANDSHAKE_VERSION)
            assert isinstance(answer, ApiVersionsResponse)
            if answer.error_code != ErrorCode.NONE:
                raise CallFailed(f"{self.description} refused ApiVersions with error {answer.error_code}")
        except BaseException:
            wire.close()
            raise
        self._versions = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
        return wire

    def hang_up(self) -> None:
        """Fails what is under way; the next call opens another connection, at once."""
        if self._wire is not None:
            self._wire.close()

    async def close(self) -> None:
        """Fails what is under way, and waits until the socket is closed."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            with contextlib.suppress(asyncio.CancelledError, CallFailed):
                await self._connecting
        wire, self._wire = self._wire, None
        if wire is not None and not wire.closed.done():
            wire.close()
            await wire.closed


class NodeClients:
    """The connections of this node to others, opened on first use: one per address and lane.

    A lane is what shares a connection. Responses come in the order of the requests, so what may wait long (a fetch that
    waits for records) must not stand before what may not (a vote, a heartbeat).
    """

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._clients: dict[tuple[str, int, str], NodeClient] = {}
        self._closed = False

    async def call(
        self,
        host: str,
        port: int,
        request: Message,
        timeout_ms: float,
        *,
        lane: str,
        receive_buffer_bytes: int = -1,
    ) -> Message:
        """Raises CallFailed. The kernel sizes the receive buffer of the connection unless it is given."""
        if self._closed:
            raise CallFailed("this node is stopping")
        client = self._clients.get((host, port, lane))
        if client is None:
            client = self._clients[host, port, lane] = NodeClient(
                host, port, client_id=f"{self._client_id}-{lane}", receive_buffer_bytes=receive_buffer_bytes
            )
        return await client.call(request, timeout_ms)

    def hang_up(self, host: str, port: int, *, lane: str) -> None:
        client = self._clients.get((host, port, lane))
        if client is not None:
            client.hang_up()

    async def close(self) -> None:
        self._closed = True
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()
