"""A real server under pressure: slow readers, pipelines, large files, vanishing clients, limits, shutdown."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest
import uvloop
from support.network import LOOPBACK, FakeClock, FrameClient, entry, running_server, until

from broker.api import RequestContext
from broker.network import NetworkSettings
from broker.network.connection import MAX_PENDING_BYTES, MAX_UNSENT_PARTS, MAX_WAITING
from broker.network.limits import LineLimiter
from config.addresses import Listener
from config.errors import ConfigError
from protocol.header import encode_request
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from storage.file_slice import FileSlice, LogFile

pytestmark = pytest.mark.filterwarnings("ignore:Overriding:DeprecationWarning")

FETCH_VERSION = 11


@pytest.fixture
def event_loop_policy() -> uvloop.EventLoopPolicy:
    return uvloop.EventLoopPolicy()


class Waiting:
    """A handler that answers when the test says so."""

    def __init__(self) -> None:
        self.futures: list[asyncio.Future[FindCoordinatorResponse]] = []

    def __call__(self, ctx: RequestContext, request: FindCoordinatorRequest) -> asyncio.Future[FindCoordinatorResponse]:
        future: asyncio.Future[FindCoordinatorResponse] = asyncio.get_running_loop().create_future()
        self.futures.append(future)
        return future


def ask(correlation_id: int, key: str = "k") -> bytes:
    return encode_request(10, 0, correlation_id, "c", FindCoordinatorRequest(key=key).encode(0))


async def test_a_client_cannot_have_more_than_so_many_requests_under_way() -> None:
    handler = Waiting()
    total = 10 * MAX_WAITING
    async with running_server(dict([entry(FindCoordinatorRequest, handler)])) as server:
        client = await FrameClient.connect(server)
        await client.send_raw(b"".join(ask(index) for index in range(total)))
        await until(lambda: len(handler.futures) == MAX_WAITING, "the limit is reached")
        for index in range(total):
            assert len(handler.futures) - index <= MAX_WAITING
            await until(lambda: len(handler.futures) > index, "the next request is taken")  # noqa: B023
            handler.futures[index].set_result(FindCoordinatorResponse(host=str(index)))
        got = [await client.receive() for _ in range(total)]
        assert [FindCoordinatorResponse.decode(body, 0).host for _, body in got] == [str(i) for i in range(total)]
        assert [correlation_id for correlation_id, _ in got] == list(range(total))
        assert server.memory.held_bytes == 0


async def test_a_client_that_does_not_read_gets_no_more_work_done() -> None:
    handled = 0
    text = "x" * 30_000

    def big(ctx: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        nonlocal handled
        handled += 1
        return FindCoordinatorResponse(host=text)

    total = 2000
    async with running_server(dict([entry(FindCoordinatorRequest, big)])) as server:
        client = await FrameClient.connect(server, receive_buffer=16 * 1024)
        other = await FrameClient.connect(server)
        sending = asyncio.create_task(client.send_raw(b"".join(ask(index) for index in range(total))))
        (connection,) = [one for one in server._connections if one.peer.endswith(str(client.socket.getsockname()[1]))]
        await until(lambda: connection._paused, "the server stops reading")
        for _ in range(5):  # others are served meanwhile, and nothing piles up
            await other.send_raw(ask(1))
            await other.receive()
        assert connection.transport.unsent_bytes <= MAX_PENDING_BYTES + len(text) + 100
        assert handled < 200
        for index in range(total):
            assert (await client.receive())[0] == index
        await sending
        assert handled == total + 5


def file_of(tmp_path: Path, size: int) -> LogFile:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(os.urandom(size))
    return LogFile(str(path))


def fetched(*slices: FileSlice) -> FetchResponse:
    partitions = [PartitionData(partition_index=index, records=part) for index, part in enumerate(slices)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])


FETCH = encode_request(1, FETCH_VERSION, 1, "consumer", FetchRequest().encode(FETCH_VERSION))


def records_of(body: bytes) -> list[bytes]:
    return [bytes(one.records) for one in FetchResponse.decode(body, FETCH_VERSION).responses[0].partitions]


async def test_records_go_from_file_to_a_slow_reader_by_sendfile(tmp_path: Path) -> None:
    size = 8_000_000
    file = file_of(tmp_path, size)

    def fetch(ctx: RequestContext, request: FetchRequest) -> FetchResponse:
        return fetched(FileSlice(file, 0, size), FileSlice(file, 100, 50), FileSlice(file, 7, 300_000))

    async with running_server(dict([entry(FetchRequest, fetch)])) as server:
        client = await FrameClient.connect(server, receive_buffer=32 * 1024)
        await client.send_raw(FETCH)
        await until(lambda: server.counters.sendfile_calls > 0, "the response is on its way")
        data = FileSlice(file, 0, size).read()
        _, body = await client.receive()
        assert records_of(body) == [data, data[100:150], data[7:300_007]]
        assert server.counters.sendfile_bytes == size + 300_000
        assert server.counters.pread_bytes == 50
        assert server.counters.sent_bytes == 8 + len(body)


async def test_many_fetches_that_nobody_reads_hold_few_descriptors(tmp_path: Path) -> None:
    file = file_of(tmp_path, 500_000)
    handled = 0

    def fetch(ctx: RequestContext, request: FetchRequest) -> FetchResponse:
        nonlocal handled
        handled += 1
        return fetched(FileSlice(file, 0, 500_000))

    async with running_server(dict([entry(FetchRequest, fetch)])) as server:
        client = await FrameClient.connect(server, receive_buffer=16 * 1024)
        await client.send_raw(FETCH * 1000)
        (connection,) = server._connections
        await until(lambda: connection._paused, "the server stops taking requests")
        assert handled <= MAX_UNSENT_PARTS
        client.reset()
        await until(lambda: server.counters.open_connections == 0, "the rest is dropped")
        assert connection.transport.unsent_parts == 0


async def test_a_log_that_is_cut_while_it_is_sent_ends_the_connection(tmp_path: Path) -> None:
    """The length is promised already; short data would shift everything behind it."""
    file = file_of(tmp_path, 20_000)

    def fetch(ctx: RequestContext, request: FetchRequest) -> FetchResponse:
        os.truncate(file.path, 9_000)
        return fetched(FileSlice(file, 0, 20_000))

    async with running_server(dict([entry(FetchRequest, fetch)])) as server:
        client = await FrameClient.connect(server)
        await client.send_raw(FETCH)
        with pytest.raises(EOFError):
            await client.receive()
        assert server.counters.open_connections == 0


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_client_that_vanishes_cancels_what_waits_for_it(how: str) -> None:
    handler = Waiting()
    cancelled = asyncio.Event()

    async def fetch(ctx: RequestContext, request: FetchRequest) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    handlers = dict([entry(FindCoordinatorRequest, handler), entry(FetchRequest, fetch)])
    async with running_server(handlers) as server:
        client = await FrameClient.connect(server)
        await client.send_raw(ask(1) + FETCH)
        await until(lambda: server.counters.requests == 2, "both wait")
        client.close() if how == "close" else client.reset()
        await asyncio.wait_for(cancelled.wait(), 5)
        assert handler.futures[0].cancelled()
        assert server.counters.open_connections == 0


async def test_a_client_that_vanishes_in_the_middle_of_a_response(tmp_path: Path) -> None:
    file = file_of(tmp_path, 8_000_000)

    def fetch(ctx: RequestContext, request: FetchRequest) -> FetchResponse:
        return fetched(FileSlice(file, 0, 8_000_000))

    async with running_server(dict([entry(FetchRequest, fetch)])) as server:
        client = await FrameClient.connect(server, receive_buffer=16 * 1024)
        await client.send_raw(FETCH)
        await until(lambda: server.counters.sendfile_calls > 0, "the response is on its way")
        client.reset()
        await until(lambda: server.counters.open_connections == 0, "the connection is gone")
        assert server.counters.sendfile_bytes < 8_000_000


async def test_idle_and_half_open_connections_are_closed(caplog: pytest.LogCaptureFixture) -> None:
    handler = Waiting()
    clock = FakeClock()
    settings = NetworkSettings(max_idle_ms=60_000)
    async with running_server(dict([entry(FindCoordinatorRequest, handler)]), settings, clock=clock) as server:
        silent, halfway, waiting = [await FrameClient.connect(server) for _ in range(3)]
        await halfway.send_raw(ask(1)[:7])
        await waiting.send_raw(ask(2))
        await until(lambda: server.counters.received_bytes == 7 + len(ask(2)), "all sent what they send")
        clock.now += 59
        server.sweep()
        assert server.counters.open_connections == 3
        clock.now += 2
        server.sweep()
        assert server.counters.open_connections == 1, "a handler's wait is not the client's idleness"
        assert await silent.is_closed_by_server()
        assert await halfway.is_closed_by_server()
        handler.futures[0].set_result(FindCoordinatorResponse(host="late"))
        assert (await waiting.receive())[0] == 2
    assert "did not arrive completely within connections.max.idle.ms" in caplog.text


async def test_the_sweep_runs_by_itself() -> None:
    async with running_server({}, NetworkSettings(max_idle_ms=20)) as server:
        client = await FrameClient.connect(server)
        assert await client.is_closed_by_server()
        await until(lambda: server.counters.open_connections == 0, "the idle connection is gone")


async def test_connections_per_address_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    settings = NetworkSettings(max_connections_per_ip=50, max_connections_overrides={"127.0.0.1": 2})
    async with running_server(dict([entry(FindCoordinatorRequest, Waiting())]), settings) as server:
        kept = [await FrameClient.connect(server) for _ in range(2)]
        refused = await FrameClient.connect(server)
        assert await refused.is_closed_by_server()
        kept[0].close()
        await until(lambda: server.counters.open_connections == 1, "one is gone")
        again = await FrameClient.connect(server)
        await again.send_raw(ask(1))
        await until(lambda: server.counters.requests == 1, "there is room again")
        assert server.counters.refused_connections == 1
    assert "it has 2 open, the limit of max.connections.per.ip" in caplog.text


async def test_beyond_max_connections_clients_wait_for_their_turn() -> None:
    async with running_server(
        dict([entry(FindCoordinatorRequest, lambda ctx, request: FindCoordinatorResponse())]),
        NetworkSettings(max_connections=2),
    ) as server:
        clients = [await FrameClient.connect(server) for _ in range(3)]
        for client in clients:
            await client.send_raw(ask(1))
        for client in clients[:2]:
            await client.receive()
        assert server.counters.open_connections == 2
        clients[0].close()
        assert (await clients[2].receive())[0] == 1


def large(size: int) -> bytes:
    return encode_request(1, FETCH_VERSION, 1, "c" * 1000, FetchRequest(rack_id="").encode(FETCH_VERSION) + bytes(size))


async def test_memory_for_arriving_requests_is_bounded_and_the_line_moves() -> None:
    """Six clients are each in the middle of a large request, more than the limit holds; all get through."""
    settings = NetworkSettings(queued_max_bytes=400_000)
    size = 300_000

    def fetch(ctx: RequestContext, request: FetchRequest) -> FetchResponse:
        return FetchResponse()

    async with running_server(dict([entry(FetchRequest, fetch)]), settings) as server:
        clients = [await FrameClient.connect(server) for _ in range(6)]
        highest = 0
        sending = [asyncio.create_task(client.send_raw(large(size))) for client in clients]
        received = [asyncio.create_task(client.receive()) for client in clients]
        while not all(one.done() for one in received):
            highest = max(highest, server.memory.held_bytes)
            await asyncio.sleep(0)
        await asyncio.gather(*sending, *received)
        # The limit, a receive of each client that was under way when it was reached, and the privileged one.
        assert highest <= 400_000 + 6 * 128 * 1024 + 2 * size
        assert server.memory.held_bytes == 0
        assert server.memory.waiting == 0
        assert server.memory.privileged is None


async def test_a_stalled_request_does_not_keep_others_from_memory(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    settings = NetworkSettings(queued_max_bytes=100_000)

    def fetch(ctx: RequestContext, request: FetchRequest) -> FetchResponse:
        return FetchResponse()

    async with running_server(dict([entry(FetchRequest, fetch)]), settings, clock=clock) as server:
        staller, other = await FrameClient.connect(server), await FrameClient.connect(server)
        await staller.send_raw(large(500_000)[:200_000])
        await until(lambda: server.memory.privileged is not None, "the staller holds the memory")
        sending = asyncio.create_task(other.send_raw(large(500_000)))
        await until(lambda: server.memory.waiting == 1, "the other waits in line")
        clock.now += 5
        server.sweep()
        assert server.counters.open_connections == 2
        clock.now += 6
        server.sweep()
        assert await staller.is_closed_by_server()
        assert (await other.receive())[0] == 1
        await sending
    assert "stalled for 10 s while others waited for memory" in caplog.text


async def test_shutdown_finishes_what_is_under_way() -> None:
    handler = Waiting()
    async with running_server(dict([entry(FindCoordinatorRequest, handler)])) as server:
        port = server.bound[0].port
        idle, busy = await FrameClient.connect(server), await FrameClient.connect(server)
        await busy.send_raw(ask(1))
        await until(lambda: len(handler.futures) == 1, "one request is under way")
        stopping = asyncio.create_task(server.shutdown(5))
        assert await idle.is_closed_by_server()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        assert not stopping.done()
        handler.futures[0].set_result(FindCoordinatorResponse(host="done"))
        assert FindCoordinatorResponse.decode((await busy.receive())[1], 0).host == "done"
        assert await busy.is_closed_by_server()
        await stopping


async def test_shutdown_cancels_what_does_not_finish() -> None:
    ended = asyncio.Event()

    async def endless(ctx: RequestContext, request: FindCoordinatorRequest) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()

    async with running_server(dict([entry(FindCoordinatorRequest, endless)])) as server:
        client = await FrameClient.connect(server)
        await client.send_raw(ask(1))
        await until(lambda: server.counters.requests == 1, "the request is under way")
        await server.shutdown(0.01)
        assert ended.is_set()
        assert await client.is_closed_by_server()


async def test_an_address_in_use_is_named() -> None:
    async with running_server({}) as server:
        taken = server.bound[0]
        with pytest.raises(ConfigError) as caught:
            async with running_server({}, listener=taken):
                raise AssertionError("bound twice")
        assert str(taken) in str(caught.value)
        assert "listeners" in str(caught.value)
        assert "in use" in str(caught.value)


@pytest.mark.parametrize(
    ("listener", "words"),
    [
        (Listener("PLAINTEXT", "192.0.2.1", 0, "PLAINTEXT"), "No interface of this machine"),
        (Listener("PLAINTEXT", "no.such.host.invalid", 0, "PLAINTEXT"), "does not resolve"),
        (Listener("SSL", "127.0.0.1", 0, "SSL"), "SSL is not supported"),
    ],
)
async def test_an_address_that_cannot_be_bound_is_explained(listener: Listener, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        async with running_server({}, listener=listener):
            raise AssertionError("bound")
    assert str(listener) in str(caught.value)


async def test_an_empty_host_takes_every_interface() -> None:
    seen: list[RequestContext] = []

    def note(ctx: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        seen.append(ctx)
        return FindCoordinatorResponse()

    handlers = dict([entry(FindCoordinatorRequest, note)])
    async with running_server(handlers, listener=LOOPBACK._replace(host="")) as server:
        client = await FrameClient.connect(server)
        await client.send_raw(ask(1))
        await client.receive()
        assert seen[0].peer.startswith("127.0.0.1:")
        assert seen[0].local_address[0] == "127.0.0.1"


def test_log_lines_are_limited_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    limiter = LineLimiter(clock, burst=3, per_second=1)
    assert [limiter.allows() for _ in range(5)] == [True, True, True, False, False]
    clock.now += 1
    assert limiter.allows()
    assert "2 more lines about broken connections were left out" in caplog.text
