"""This node as a client of others: pipelining, deadlines, lost connections, versions, and peers that talk nonsense."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable

import pytest
import uvloop

from broker.network.client import CallFailed, ConnectionRefused, NodeClient, NodeClients, UnsupportedByPeer
from protocol.header import encode_response_header, parse_request_header
from protocol.messages import request_class
from protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.vote import VoteRequest
from protocol.schema import Message

Answer = Callable[[Message], Message | None]


class Server:
    """Answers ApiVersions by itself and everything else as it is told; None means silence."""

    def __init__(self) -> None:
        self.versions = {18: (0, 4), 63: (0, 2), 52: (0, 1)}
        self.answer: Answer = lambda request: BrokerHeartbeatResponse(is_caught_up=True)
        self.hold: asyncio.Event | None = None
        self.connections = 0
        self.arrived = asyncio.Event()
        self.writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        self.drop()

    def drop(self) -> None:
        writers, self.writers = self.writers, []
        for writer in writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                key, version, correlation_id, _, offset = parse_request_header(memoryview(frame))
                request = request_class(key).decode(frame, version, offset)
                response: Message | None
                if isinstance(request, ApiVersionsRequest):
                    keys = [ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in self.versions.items()]
                    response = ApiVersionsResponse(api_keys=keys)
                else:
                    self.arrived.set()
                    if self.hold is not None:
                        await self.hold.wait()
                    response = self.answer(request)
                if response is not None:
                    body = encode_response_header(key, version, correlation_id) + response.encode(version)
                    writer.write(struct.pack(">i", len(body)) + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    await made.start()
    yield made
    await made.stop()


def beat(broker_id: int = 1) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(broker_id=broker_id)


async def test_requests_share_a_connection_and_answers_find_their_requests(server: Server) -> None:
    client = NodeClient("127.0.0.1", server.port, client_id="t")
    server.answer = lambda request: BrokerHeartbeatResponse(error_code=request.broker_id)  # type: ignore[attr-defined]
    answers = await asyncio.gather(*(client.call(beat(number), 5000) for number in range(50)))
    assert [answer.error_code for answer in answers] == list(range(50))  # type: ignore[attr-defined]
    assert server.connections == 1
    await client.close()
    with pytest.raises(CallFailed, match="closed"):
        await client.call(beat(), 1000)


async def test_a_peer_that_does_not_answer_is_given_up_and_called_anew(server: Server) -> None:
    client = NodeClient("127.0.0.1", server.port, client_id="t")
    server.hold = asyncio.Event()
    with pytest.raises(CallFailed, match="did not answer within 50 ms"):
        await client.call(beat(), 50)
    server.hold = None
    assert (await client.call(beat(), 5000)).is_caught_up  # type: ignore[attr-defined]
    assert server.connections == 2, "the first may hang for ever"
    await client.close()


async def test_a_lost_connection_fails_what_is_under_way_and_the_next_call_opens_another(server: Server) -> None:
    client = NodeClient("127.0.0.1", server.port, client_id="t")
    server.hold = asyncio.Event()
    calls = [asyncio.create_task(client.call(beat(), 5000)) for _ in range(3)]
    await server.arrived.wait()
    server.drop()
    for call in calls:
        with pytest.raises(CallFailed, match="lost"):
            await call
    server.hold = None
    assert (await client.call(beat(), 5000)).is_caught_up  # type: ignore[attr-defined]
    await client.close()


async def test_nobody_at_the_address_is_told_apart_and_not_asked_too_often(server: Server) -> None:
    client = NodeClient("127.0.0.1", server.port, client_id="t")
    await server.stop()
    loop = asyncio.get_running_loop()
    begin = loop.time()
    for _ in range(4):
        with pytest.raises(ConnectionRefused, match="nobody listens"):
            await client.call(beat(), 5000)
    assert loop.time() - begin >= 0.05 + 0.1 + 0.2, "each try waits longer than the one before"
    with pytest.raises(CallFailed, match="within 20 ms"):
        await client.call(beat(), 20)
    await client.close()


async def test_the_highest_version_of_both_is_used_and_none_is_an_error(server: Server) -> None:
    client = NodeClient("127.0.0.1", server.port, client_id="t")
    server.versions[63] = (0, 1)
    assert (await client.call(beat(), 5000)).is_caught_up  # type: ignore[attr-defined]
    del server.versions[52]
    with pytest.raises(UnsupportedByPeer, match="serves BrokerHeartbeat 0 to 1"):
        await client.call(beat(), 5000, version=-1)
    server.drop()
    await asyncio.sleep(0.01)
    with pytest.raises(UnsupportedByPeer, match="does not serve Vote"):
        await client.call(VoteRequest(), 5000)
    await client.close()


async def test_nonsense_ends_the_connection_not_the_process(server: Server) -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x7f\xff\xff\xff" + b"x" * 100)

    other = await asyncio.start_server(babble, "127.0.0.1", 0)
    client = NodeClient("127.0.0.1", other.sockets[0].getsockname()[1], client_id="t")
    with pytest.raises(CallFailed):
        await client.call(beat(), 2000)
    other.close()
    await client.close()


async def test_lanes_do_not_wait_for_each_other(server: Server) -> None:
    clients = NodeClients("node-1")
    server.hold = asyncio.Event()
    slow = asyncio.create_task(clients.call("127.0.0.1", server.port, beat(), 5000, lane="fetch"))
    await server.arrived.wait()
    held, server.hold = server.hold, None
    quick = await clients.call("127.0.0.1", server.port, beat(), 5000, lane="raft")
    assert quick.is_caught_up and not slow.done()  # type: ignore[attr-defined]
    held.set()
    assert (await slow).is_caught_up  # type: ignore[attr-defined]
    await clients.close()
    with pytest.raises(CallFailed, match="stopping"):
        await clients.call("127.0.0.1", server.port, beat(), 5000, lane="raft")


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_the_receive_buffer_of_a_connection_is_as_large_as_it_is_said_to_be(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """replica.socket.receive.buffer.bytes, on the loop of the tests and on that of the server. Linux doubles it."""

    async def sizes() -> list[int]:
        server = Server()
        await server.start()
        found = []
        for asked in (20_000, -1):
            client = NodeClient("127.0.0.1", server.port, client_id="test", receive_buffer_bytes=asked)
            await client.call(beat(), 5_000)
            assert client._wire is not None and client._wire._transport is not None
            connected = client._wire._transport.get_extra_info("socket")
            found.append(connected.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF))
            await client.close()
        await server.stop()
        return found

    with asyncio.Runner(loop_factory=loop) as runner:
        asked, default = runner.run(sizes())
    assert asked == 40_000 != default
