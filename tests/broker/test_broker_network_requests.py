"""A real server on the loopback interface with handlers of our own: dispatch, order, errors, bad input."""

from __future__ import annotations

import asyncio
import logging
import re
import struct

import pytest
import uvloop
from support.network import FrameClient, entry, running_server, until

from broker.api import HandlerEntry, RequestContext
from broker.network import NetworkSettings
from protocol.errors import ApiError, ErrorCode
from protocol.header import encode_request
from protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

pytestmark = pytest.mark.filterwarnings("ignore:Overriding:DeprecationWarning")


@pytest.fixture
def event_loop_policy() -> uvloop.EventLoopPolicy:
    return uvloop.EventLoopPolicy()


def echo(ctx: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Answers at once, with the key it was given."""
    return FindCoordinatorResponse(host=request.key)


ECHO = dict([entry(FindCoordinatorRequest, echo)])


def produce(payload: bytes, acks: int = 1) -> ProduceRequest:
    partition = PartitionProduceData(index=0, records=payload)
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[partition])]
    )


def payload_of(request: ProduceRequest) -> memoryview:
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    return records


async def ask(client: FrameClient, key: str, correlation_id: int = 1) -> str:
    await client.send(FindCoordinatorRequest(key=key), 0, correlation_id)
    got, body = await client.receive()
    assert got == correlation_id
    return FindCoordinatorResponse.decode(body, 0).host


async def test_a_request_gets_its_response() -> None:
    async with running_server(ECHO) as server:
        client = await FrameClient.connect(server)
        assert await ask(client, "hello", 77) == "hello"
        assert server.counters.requests == 1


async def test_flexible_versions_carry_a_flexible_header() -> None:
    async with running_server(ECHO) as server:
        client = await FrameClient.connect(server)
        await client.send(FindCoordinatorRequest(key="k"), 3, 5)
        correlation_id, rest = await client.receive()
        assert (correlation_id, rest[0]) == (5, 0)
        assert FindCoordinatorResponse.decode(rest, 3, 1).host == "k"


async def test_the_context_says_who_asks() -> None:
    seen: list[RequestContext] = []

    def note(ctx: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        seen.append(ctx)
        return FindCoordinatorResponse()

    async with running_server(dict([entry(FindCoordinatorRequest, note)])) as server:
        client = await FrameClient.connect(server)
        await client.send(FindCoordinatorRequest(key="k"), 2, 9, client_id=None)
        await client.receive()
        ctx = seen[0]
        assert (ctx.api_key, ctx.api_version, ctx.correlation_id, ctx.client_id) == (10, 2, 9, None)
        assert ctx.peer == f"127.0.0.1:{client.socket.getsockname()[1]}"
        assert ctx.local_address == ("127.0.0.1", server.bound[0].port)
        assert ctx.listener.name == "PLAINTEXT"


async def test_a_request_in_single_bytes() -> None:
    async with running_server(ECHO) as server:
        client = await FrameClient.connect(server)
        for byte in encode_request(10, 0, 3, "c", FindCoordinatorRequest(key="slow").encode(0)):
            await client.send_raw(bytes([byte]))
        correlation_id, body = await client.receive()
        assert (correlation_id, FindCoordinatorResponse.decode(body, 0).host) == (3, "slow")


async def test_a_large_request_arrives_whole_and_writable() -> None:
    """The log patches offsets in place, so records must be a writable view."""
    sizes: list[int] = []

    def take(ctx: RequestContext, request: ProduceRequest) -> ProduceResponse:
        records = payload_of(request)
        assert not records.readonly
        assert bytes(records) == b"r" * len(records)
        sizes.append(len(records))
        return ProduceResponse()

    async with running_server(dict([entry(ProduceRequest, take)])) as server:
        client = await FrameClient.connect(server)
        for size in (10, 3_000_000, 20):
            await client.send(produce(b"r" * size), 9)
            await client.receive()
        assert sizes == [10, 3_000_000, 20]
        assert server.memory.held_bytes == 0


async def test_responses_leave_in_request_order_while_later_requests_are_handled() -> None:
    waiting: list[asyncio.Future[FindCoordinatorResponse]] = []
    handled: list[str] = []

    def handle(
        ctx: RequestContext, request: FindCoordinatorRequest
    ) -> FindCoordinatorResponse | asyncio.Future[FindCoordinatorResponse]:
        handled.append(request.key)
        if request.key == "now":
            return FindCoordinatorResponse(host="now")
        future: asyncio.Future[FindCoordinatorResponse] = asyncio.get_running_loop().create_future()
        waiting.append(future)
        return future

    async with running_server(dict([entry(FindCoordinatorRequest, handle)])) as server:
        client = await FrameClient.connect(server)
        for correlation_id, key in enumerate(("first", "now", "second", "now")):
            await client.send(FindCoordinatorRequest(key=key), 0, correlation_id)
        await until(lambda: len(handled) == 4, "later requests are handled while the first waits")
        waiting[1].set_result(FindCoordinatorResponse(host="second"))
        await asyncio.sleep(0)
        assert server.counters.sent_bytes == 0
        waiting[0].set_result(FindCoordinatorResponse(host="first"))
        got = [await client.receive() for _ in range(4)]
        assert [correlation_id for correlation_id, _ in got] == [0, 1, 2, 3]
        hosts = [FindCoordinatorResponse.decode(body, 0).host for _, body in got]
        assert hosts == ["first", "now", "second", "now"]


async def test_a_coroutine_handler_keeps_its_request_while_others_use_the_buffer() -> None:
    release = asyncio.Event()

    async def slow(ctx: RequestContext, request: ProduceRequest) -> ProduceResponse:
        records = payload_of(request)
        await release.wait()
        assert bytes(records) == b"mine" * 100
        return ProduceResponse(throttle_time_ms=4)

    async with running_server({**ECHO, **dict([entry(ProduceRequest, slow)])}) as server:
        first, second = await FrameClient.connect(server), await FrameClient.connect(server)
        await first.send(produce(b"mine" * 100), 9)
        await until(lambda: server.counters.requests == 1, "the request is under way")
        assert await ask(second, "x" * 5000) == "x" * 5000
        release.set()
        _, rest = await first.receive()
        assert ProduceResponse.decode(rest, 9, 1).throttle_time_ms == 4


async def test_a_handler_may_want_no_response() -> None:
    def silent(ctx: RequestContext, request: ProduceRequest) -> None:
        return None

    async def silent_later(ctx: RequestContext, request: InitProducerIdRequest) -> None:
        return None

    handlers = {**ECHO, **dict([entry(ProduceRequest, silent), entry(InitProducerIdRequest, silent_later)])}
    async with running_server(handlers) as server:
        client = await FrameClient.connect(server)
        await client.send(produce(b"fire and forget", acks=0), 9)
        await client.send(InitProducerIdRequest(), 0)
        assert await ask(client, "next", 2) == "next"


async def test_a_handler_can_close_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    """What Produce with acks=0 does with an error: earlier responses still leave."""

    def refuse(ctx: RequestContext, request: ProduceRequest) -> None:
        ctx.close_connection("produce with acks=0 failed: NOT_LEADER_OR_FOLLOWER")

    async with running_server({**ECHO, **dict([entry(ProduceRequest, refuse)])}) as server:
        client = await FrameClient.connect(server)
        before = encode_request(10, 0, 1, "c", FindCoordinatorRequest(key="k").encode(0))
        await client.send_raw(before + encode_request(0, 9, 2, "c", produce(b"x", acks=0).encode(9)))
        assert (await client.receive())[0] == 1
        assert await client.is_closed_by_server()
        assert "closed: produce with acks=0 failed" in caplog.text


async def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    """KIP-511: a newer client learns from the answer what to ask with, and goes on using the connection."""

    def api_versions(ctx: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
        known = ctx.api_version in ApiVersionsRequest.VERSIONS
        error = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_VERSION
        return ApiVersionsResponse(error_code=error, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)])

    async with running_server(dict([entry(ApiVersionsRequest, api_versions)])) as server:
        client = await FrameClient.connect(server)
        await client.send_raw(encode_request(18, 99, 5, "new", b"\xff" * 40))
        correlation_id, body = await client.receive()
        response = ApiVersionsResponse.decode(body, 0)
        assert (correlation_id, response.error_code) == (5, ErrorCode.UNSUPPORTED_VERSION)
        assert response.api_keys[0].max_version == 4
        await client.send(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3, 6)
        correlation_id, body = await client.receive()
        assert (correlation_id, ApiVersionsResponse.decode(body, 3).error_code) == (6, ErrorCode.NONE)


def _fail(ctx: RequestContext, request: object) -> None:
    raise RuntimeError("a bug of ours")


async def _fail_later(ctx: RequestContext, request: object) -> None:
    raise ApiError(ErrorCode.INVALID_REQUEST, "escaped")


@pytest.mark.parametrize("function", [_fail, _fail_later])
async def test_a_bug_is_answered_where_the_response_has_room_for_it(
    function: object, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = {**ECHO, 22: HandlerEntry(InitProducerIdRequest, function, 0, 5, 0)}  # type: ignore[arg-type]
    async with running_server(handlers) as server:
        client = await FrameClient.connect(server)
        await client.send(InitProducerIdRequest(), 0, 8)
        correlation_id, body = await client.receive()
        assert correlation_id == 8
        assert InitProducerIdResponse.decode(body, 0).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert await ask(client, "still here") == "still here"
        assert server.counters.failed_requests == 1
    assert caplog.text.count("Traceback") == 1


@pytest.mark.parametrize("function", [_fail, _fail_later])
async def test_a_bug_closes_the_connection_where_it_has_none(
    function: object, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = {**ECHO, 0: HandlerEntry(ProduceRequest, function, 3, 13, 0)}  # type: ignore[arg-type]
    async with running_server(handlers) as server:
        client, other = await FrameClient.connect(server), await FrameClient.connect(server)
        await client.send(produce(b"x"), 9)
        assert await client.is_closed_by_server()
        assert await ask(other, "others go on") == "others go on"
    assert caplog.text.count("Traceback") == 1


GOOD = encode_request(10, 0, 1, "someone", FindCoordinatorRequest(key="k").encode(0))

BAD_INPUT = {
    "oversize": (struct.pack(">i", 2**20 + 1), "larger than socket.request.max.bytes=1048576"),
    "negative length": (struct.pack(">i", -5), "negative frame length -5"),
    "http": (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "looks like an HTTP request"),
    "tls": (b"\x16\x03\x01\x00\xc8\x01\x00\x00\xc4\x03\x03" + b"r" * 100, "looks like a TLS handshake"),
    "empty frame": (struct.pack(">i", 0), "header is cut off"),
    "unknown api key": (struct.pack(">ihhih", 10, 1234, 0, 1, -1), "unknown API key 1234"),
    "not served": (struct.pack(">ihhih", 10, 3, 0, 1, -1), "API key 3 \\(Metadata\\) is not served"),
    "unsupported version": (struct.pack(">ihhih", 10, 10, 55, 1, -1), "cut off|version 55 is not served, only 0 to 6"),
    "client id too long": (struct.pack(">ihhih", 10, 10, 0, 1, 900), "client id is longer than the request"),
    "string too long": (struct.pack(">ihhihh", 12, 10, 0, 1, -1, 5000), ""),
    "endless varint": (struct.pack(">ihhih", 31, 10, 3, 1, -1) + b"\0" + b"\xff" * 20, ""),
    "random bytes behind a good request": (GOOD + b"\x99\x01\x02\x03" * 50, "negative frame length"),
}


@pytest.mark.parametrize("name", BAD_INPUT)
async def test_bad_input_closes_that_connection_with_one_line(name: str, caplog: pytest.LogCaptureFixture) -> None:
    data, expected = BAD_INPUT[name]
    caplog.set_level(logging.INFO)
    async with running_server(ECHO, NetworkSettings(request_max_bytes=2**20)) as server:
        client, other = await FrameClient.connect(server), await FrameClient.connect(server)
        peer = f"127.0.0.1:{client.socket.getsockname()[1]}"
        await client.send_raw(data)
        if data.startswith(GOOD):
            await client.receive()
        assert await client.is_closed_by_server()
        assert await ask(other, "others go on") == "others go on"
        assert server.counters.open_connections == 1
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("broker.network")]
    assert len(lines) == 1
    assert lines[0].startswith(f"Connection from {peer} on PLAINTEXT")
    assert re.search(expected, lines[0])
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_request_cut_in_the_middle(how: str, caplog: pytest.LogCaptureFixture) -> None:
    async with running_server(ECHO) as server:
        client = await FrameClient.connect(server)
        await client.send_raw(GOOD + GOOD[:-3])
        assert (await client.receive())[0] == 1
        client.close() if how == "close" else client.reset()
        await until(lambda: server.counters.open_connections == 0, "the connection is gone")
        assert server.counters.broken_connections == 1
    assert "client id 'someone'" in caplog.text
    assert "in the middle of a request" in caplog.text


async def test_a_client_that_just_leaves_is_no_news(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with running_server(ECHO) as server:
        client = await FrameClient.connect(server)
        await ask(client, "k")
        client.close()
        await until(lambda: server.counters.open_connections == 0, "the connection is gone")
    assert caplog.text == ""
