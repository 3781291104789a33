"""One client's connection: frames in, handlers called, responses out in request order.

Requests are handled as they arrive, also while an earlier one still waits; only their responses queue up. A handler
that does not wait costs no task, no future and no slot: its response goes straight to the transport, and all
responses of one wake-up leave in one system call.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from broker.api import Repeat, Repetition, RequestContext
from broker.network.frames import FrameReader
from broker.network.routes import Route
from broker.network.transport import Part, Transport
from protocol.errors import DecodeError
from protocol.header import parse_request_header
from protocol.schema import Message

if TYPE_CHECKING:
    from broker.network.server import SocketServer
    from config.addresses import Listener

log = logging.getLogger(__name__)

MAX_WAITING = 64
"""Requests of one connection under way. Clients send 5 (Java, idempotent librdkafka) unless told otherwise; 64 of
16 KB are 1 MB in the pipe, enough for 1 GB/s at a round trip of one millisecond."""

MAX_UNSENT_PARTS = 2 * MAX_WAITING
"""The same for responses that are ready and that the client does not read: header and records of each."""

MAX_PENDING_BYTES = 1024 * 1024
"""Memory of one connection's requests under way and responses not sent, beyond which no further request is taken. A
single one may be larger. Half of it must be gone before reading goes on, so that it does not flap."""


class Slot:
    """The place of one response in the order of the connection's requests."""

    __slots__ = ("connection", "correlation_id", "cost", "future", "parts", "route")

    def __init__(self, connection: Connection, route: Route, correlation_id: int, cost: int) -> None:
        self.connection = connection
        self.route = route
        self.correlation_id = correlation_id
        self.cost = cost
        """Bytes held on behalf of this request: a copy of it, or the response that may not leave yet."""
        self.future: asyncio.Future[Message | None] | None = None
        self.parts: list[Part] | None = None
        """None until the response is known; empty where the protocol wants none."""

    def on_done(self, future: asyncio.Future[Message | None]) -> None:
        self.connection.on_response(self, future)


class Connection:
    """Owns its frame reader, its slots and its transport. Everything runs in the loop's thread."""

    __slots__ = (
        "_flush_scheduled",
        "_memory_held",
        "_on_close_requested",
        "_paused",
        "_pending_bytes",
        "_repeat",
        "_repeated",
        "_slots",
        "_waits_for_memory",
        "client_id",
        "closed",
        "draining",
        "ip",
        "last_active",
        "listener",
        "local_address",
        "peer",
        "reader",
        "server",
        "transport",
    )

    transport: Transport
    """Set by the server right after construction: transport and connection know each other."""

    def __init__(
        self, server: SocketServer, listener: Listener, ip: str, peer: str, local_address: tuple[str, int]
    ) -> None:
        self.server = server
        self.listener = listener
        self.ip = ip
        self.peer = peer
        self.local_address = local_address
        self.client_id: str | None = None
        self.reader = FrameReader(server.scratch, server.settings.request_max_bytes, server.buffers)
        self.last_active = server.clock()
        self.closed = False
        self.draining = False
        self._repeat: Repeat | None = None
        """The shorter way for a request like the last ones."""
        self._repeated: object = None
        self._slots: deque[Slot] = deque()
        self._pending_bytes = 0
        self._memory_held = 0
        self._paused = False
        self._waits_for_memory = False
        self._flush_scheduled = False
        self._on_close_requested = self.on_close_requested

    # What the transport tells.

    def writable(self) -> memoryview:
        return self.reader.writable()

    def on_received(self, count: int) -> None:
        self.last_active = self.server.clock()
        self.reader.received(count)
        self._process()

    def on_eof(self) -> None:
        if self.reader.has_partial:
            self._fail("the client closed it in the middle of a request")
        else:
            self.close()

    def on_lost(self, reason: str) -> None:
        """Clients vanish every day: worth a line only if a request was cut."""
        if self.reader.has_partial:
            self._fail(f"{reason} in the middle of a request")
        else:
            log.debug("%s lost: %s", self.description, reason)
            self.close()

    def on_sent(self) -> None:
        self.last_active = self.server.clock()
        self._after_progress()

    def on_memory_granted(self) -> None:
        if not self.closed:
            self._waits_for_memory = False
            self._update_reading()

    # Requests.

    def _process(self) -> None:
        """Takes complete frames until there is none left, or the client has enough under way."""
        reader = self.reader
        try:
            while True:
                if self._is_overloaded():
                    self.transport.flush()
                    if self.closed or self._is_overloaded():
                        break
                frame = reader.next_frame()
                if frame is None:
                    break
                self._handle(frame)
                if self.closed:
                    return
        except DecodeError as error:
            self.fail(str(error))
            return
        if self.closed:
            return
        reader.park()
        self.transport.flush()
        if not self.closed:
            self._update_reading()

    def _handle(self, frame: memoryview) -> None:
        server = self.server
        server.counters.requests += 1
        repeat = self._repeat
        if repeat is not None and not self._slots:
            answer = repeat.answer(frame)
            if repeat.is_stale:
                self._repeat = self._repeated = None
            if answer is not None:
                self.transport.send(answer)
                return
        api_key, version, correlation_id, client_id, offset = parse_request_header(frame)
        self.client_id = client_id
        route = server.router.find(api_key, version)
        cost = 0
        data: memoryview | bytearray = frame
        if route.keeps_request:
            data = bytearray(frame)
            cost = len(data)
        request = route.decode(data, offset)
        context = RequestContext(
            server.broker,
            api_key,
            version,
            correlation_id,
            client_id,
            peer=self.peer,
            listener=self.listener,
            local_address=self.local_address,
            close_connection=self._on_close_requested,
        )
        try:
            result = route.function(context, request)
            if self.closed:
                return
            if isinstance(result, Message):
                parts = route.encode(correlation_id, result)
                if self._slots:
                    self._wait_for_turn(route, correlation_id, parts)
                else:
                    self.transport.send(parts)
                if route.repetition is not None:
                    self._learn(route.repetition, context, frame, request)
            elif result is not None:
                future = asyncio.ensure_future(result)
                slot = Slot(self, route, correlation_id, cost)
                slot.future = future
                self._pending_bytes += cost
                self._slots.append(slot)
                future.add_done_callback(slot.on_done)
        except DecodeError:
            raise
        except Exception as error:
            failure = self._failure(route, correlation_id, error)
            if failure is not None:
                self._wait_for_turn(route, correlation_id, failure)

    def _learn(self, repetition: Repetition, context: RequestContext, frame: memoryview, request: Message) -> None:
        """Two requests in a row that are alike earn a shorter way for those that follow."""
        common = repetition.common(context, frame, request)
        if common is None or common != self._repeated:
            self._repeated, self._repeat = common, None
        elif self._repeat is None:
            self._repeat = repetition.make(context, request, common)

    def _wait_for_turn(self, route: Route, correlation_id: int, parts: list[Part]) -> None:
        slot = Slot(self, route, correlation_id, 0)
        self._slots.append(slot)
        self._fill(slot, parts)

    # Responses.

    def on_response(self, slot: Slot, future: asyncio.Future[Message | None]) -> None:
        """An awaited response is there, or its handler failed."""
        if self.closed:
            if not future.cancelled():
                future.exception()  # seen, so that asyncio does not report it as forgotten
            return
        route = slot.route
        parts: list[Part] = []
        try:
            response = future.result()
            if response is not None:
                parts = route.encode(slot.correlation_id, response)
        except asyncio.CancelledError:
            self.close()
            return
        except DecodeError as error:
            self.fail(str(error))
            return
        except Exception as error:
            failure = self._failure(route, slot.correlation_id, error)
            if failure is None:
                return
            parts = failure
        self._fill(slot, parts)
        if self._slots:
            self._flush_soon()  # the next in line is often ready within the same turn of the loop
        else:
            self._after_progress()

    def _fill(self, slot: Slot, parts: list[Part]) -> None:
        """Puts a response into its place, and sends what is no longer behind anything."""
        slot.future = None
        slot.parts = parts
        cost = 0
        for part in parts:
            if isinstance(part, (bytes, bytearray, memoryview)):
                cost += len(part)
        self._pending_bytes += cost - slot.cost
        slot.cost = cost
        slots = self._slots
        while slots and (ready := slots[0].parts) is not None:
            self._pending_bytes -= slots.popleft().cost
            self.transport.send(ready)

    def _flush_soon(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self.server.loop.call_soon(self._on_flush_scheduled)

    def _on_flush_scheduled(self) -> None:
        self._flush_scheduled = False
        if not self.closed:
            self._after_progress()

    def _after_progress(self) -> None:
        """Responses became ready or left: send, then take up reading or finish a shutdown."""
        self.transport.flush()
        if self.closed:
            return
        if self.draining:
            self._close_if_drained()
        elif self._paused and self._may_resume():
            self._paused = False
            self.reader.unpark()
            self._process()

    # Back-pressure.

    def _is_overloaded(self) -> bool:
        transport = self.transport
        return (
            len(self._slots) >= MAX_WAITING
            or transport.unsent_bytes + self._pending_bytes > MAX_PENDING_BYTES
            or transport.unsent_parts >= MAX_UNSENT_PARTS
        )

    def _may_resume(self) -> bool:
        transport = self.transport
        return (
            len(self._slots) <= MAX_WAITING // 2
            and transport.unsent_bytes + self._pending_bytes <= MAX_PENDING_BYTES // 2
            and transport.unsent_parts <= MAX_UNSENT_PARTS // 2
        )

    def _update_reading(self) -> None:
        """Reads on, unless the client has too much under way or memory for arriving requests is short."""
        memory = self.server.memory
        held = self.reader.held_bytes
        if held != self._memory_held:
            change = held - self._memory_held
            self._memory_held = held
            memory.adjust(change)
            if change < 0:
                memory.on_released(self, self.last_active)
        if self._is_overloaded():
            self._paused = True
        elif held and not memory.may_read(self, self.last_active):
            self._waits_for_memory = True
        if self._paused or self._waits_for_memory or self.draining:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    # The end.

    @property
    def description(self) -> str:
        client = "" if self.client_id is None else f" (client id {self.client_id[:80]!r})"
        return f"Connection from {self.peer} on {self.listener.name}{client}"

    @property
    def waiting_requests(self) -> int:
        return len(self._slots)

    def is_idle(self, since: float) -> bool:
        """Nothing moved since then, and not because a handler makes the client wait."""
        return self.last_active < since and (not self._slots or self.transport.unsent_parts > 0)

    def waiting_futures(self) -> list[asyncio.Future[Message | None]]:
        return [slot.future for slot in self._slots if slot.future is not None]

    def _failure(self, route: Route, correlation_id: int, error: Exception) -> list[Part] | None:
        """A handler raised something it should have answered: a bug of ours, so the log gets the traceback.

        The error response, or None if the API has none and the connection was closed instead.
        """
        self.server.counters.failed_requests += 1
        if self.server.log_limit.allows():
            log.error("%s: %s failed", self.description, route.name, exc_info=error)
        try:
            response = route.failure()
            if response is not None:
                return route.encode(correlation_id, response)
        except Exception:
            log.exception("%s has no usable error response", route.name)
        self.close()
        return None

    def on_close_requested(self, reason: str) -> None:
        """A handler that has no response to put its error into asks for the end of the connection."""
        self.fail(reason)

    def fail(self, reason: str) -> None:
        """Closes because of what the peer sent, with one line that says who and why. Ready responses still leave."""
        if not self.closed:
            self.transport.flush()
        self._fail(reason)

    def _fail(self, reason: str) -> None:
        if self.closed:
            return
        self.server.counters.broken_connections += 1
        if self.server.log_limit.allows():
            log.warning("%s closed: %s", self.description, reason)
        self.close()

    def drain(self) -> None:
        """Takes no further request, answers those under way, then closes."""
        self.draining = True
        self.transport.pause_reading()
        self._close_if_drained()

    def _close_if_drained(self) -> None:
        if not self._slots and not self.transport.unsent_parts:
            self.close()

    def close(self) -> None:
        """Frees everything at once and cancels what still waits for an answer. Safe to call again."""
        if self.closed:
            return
        self.closed = True
        self.transport.close()
        self.reader.clear()
        memory = self.server.memory
        memory.adjust(-self._memory_held)
        self._memory_held = 0
        waiting = self.waiting_futures()
        self._slots.clear()
        self._on_close_requested = _nothing_to_close
        memory.on_released(self, self.last_active)
        self.server.on_closed(self)
        for future in waiting:
            future.cancel()


def _nothing_to_close(reason: str) -> None:
    """The connection is gone already."""
