"""The listening side: binds listeners, accepts connections within limits, closes idle ones, and shuts down in order."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from broker.api import HANDLERS, HandlerEntry
from broker.network.buffers import BufferPool
from broker.network.connection import Connection
from broker.network.counters import NetworkCounters
from broker.network.frames import SCRATCH_SIZE
from broker.network.limits import ArrivingMemory, ConnectionCounts, LineLimiter
from broker.network.listening import open_listener
from broker.network.routes import Router
from broker.network.settings import NetworkSettings
from broker.network.transport import PlainTransport
from config.addresses import Listener
from protocol.schema import Message

if TYPE_CHECKING:
    from broker.server import Broker

log = logging.getLogger(__name__)

ACCEPTS_PER_TURN = 32
"""Accepted per wake-up of the loop: a storm of new clients must not silence the old ones."""

ACCEPT_PAUSE_S = 0.5
"""After running out of file descriptors. Accepting on at once would fail in a loop, for the listener stays readable."""

SWEEPS_PER_IDLE_TIME = 8
MAX_SWEEP_INTERVAL_S = 10.0
MIN_SWEEP_INTERVAL_S = 0.02

STALL_S = 10.0
"""How long the one connection that may exceed the memory limit can keep others waiting without sending a byte."""

SILENT_S = 1.0
"""A connection that said nothing for so long is asked whether its peer is still there."""

CANCEL_GRACE_S = 1.0
"""For cancelled handlers to end. A handler that ignores cancellation must not hold up the shutdown."""


class _Acceptor:
    """One listener and its socket."""

    __slots__ = ("accepting", "listener", "socket")

    def __init__(self, listener: Listener, sock: socket.socket) -> None:
        self.listener = listener
        self.socket = sock
        self.accepting = False


class SocketServer:
    """All listeners and connections of a node.

    `bind()` takes the addresses, so that a wrong one stops the start before anything else happened; `start()` opens
    them, once there is something to serve; `shutdown()` drains.
    """

    def __init__(
        self,
        broker: Broker,
        listeners: Sequence[Listener],
        settings: NetworkSettings,
        *,
        handlers: Mapping[int, HandlerEntry] = HANDLERS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.broker = broker
        self.on_connection_closed: Callable[[str], None] | None = None
        """Hears the "host:port" of each peer that is gone."""
        self.settings = settings
        self.clock = clock
        self.router = Router(handlers)
        self.counters = NetworkCounters()
        self.memory = ArrivingMemory(settings.arriving_bytes_limit)
        self.log_limit = LineLimiter(clock)
        self.scratch = bytearray(SCRATCH_SIZE)
        self.buffers = BufferPool()
        """Where every connection receives; see broker.network.frames."""
        self.loop: asyncio.AbstractEventLoop
        self._listeners = tuple(listeners)
        self._acceptors: list[_Acceptor] = []
        self._connections: set[Connection] = set()
        self._counts = ConnectionCounts(
            settings.max_connections, settings.max_connections_per_ip, settings.max_connections_overrides
        )
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._all_closed: asyncio.Event | None = None

    # Listening.

    def bind(self) -> tuple[Listener, ...]:
        """Takes every address or none, and returns the listeners with the ports they really have."""
        try:
            for listener in self._listeners:
                sock, port = open_listener(listener, self.settings)
                self._acceptors.append(_Acceptor(listener._replace(port=port), sock))
        except BaseException:
            self._close_listeners()
            raise
        return self.bound

    @property
    def bound(self) -> tuple[Listener, ...]:
        return tuple(acceptor.listener for acceptor in self._acceptors)

    def listen(self) -> None:
        """Lets clients connect; they wait in the backlog until `start`."""
        for acceptor in self._acceptors:
            acceptor.socket.listen(self.settings.listen_backlog)

    def start(self) -> None:
        """Opens the bound addresses to clients. Must be called inside the running loop."""
        self.loop = asyncio.get_running_loop()
        self.listen()
        self._accept_all()
        self._schedule_sweep()

    def _accept_all(self) -> None:
        for acceptor in self._acceptors:
            if not acceptor.accepting:
                acceptor.accepting = True
                self.loop.add_reader(acceptor.socket.fileno(), self._on_acceptable, acceptor)

    def _accept_none(self) -> None:
        """Clients wait in the kernel's backlog, as they do when Apache Kafka has max.connections."""
        for acceptor in self._acceptors:
            if acceptor.accepting:
                acceptor.accepting = False
                self.loop.remove_reader(acceptor.socket.fileno())

    def _on_acceptable(self, acceptor: _Acceptor) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            if self._counts.is_full:
                if self.log_limit.allows():
                    log.warning("max.connections=%d reached; new clients wait", self.settings.max_connections)
                self._accept_none()
                return
            try:
                sock, address = acceptor.socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._on_accept_failed(acceptor, error)
                return
            self._open(acceptor.listener, sock, address)

    def _on_accept_failed(self, acceptor: _Acceptor, error: OSError) -> None:
        if self.log_limit.allows():
            hint = " (raise `ulimit -n`)" if error.errno in (errno.EMFILE, errno.ENFILE) else ""
            log.error("Cannot accept connections on %s: %s%s", acceptor.listener, error.strerror, hint)
        self._accept_none()
        self.loop.call_later(ACCEPT_PAUSE_S, self._maybe_accept_again)

    def _maybe_accept_again(self) -> None:
        if not self._counts.is_full:
            self._accept_all()

    def _open(self, listener: Listener, sock: socket.socket, address: tuple[str, int]) -> None:
        counters = self.counters
        ip, port = _plain_address(address)
        if not self._counts.try_add(ip):
            counters.refused_connections += 1
            if self.log_limit.allows():
                log.warning(
                    "Connection from %s on %s refused: it has %d open, the limit of max.connections.per.ip",
                    ip,
                    listener.name,
                    self._counts.limit_of(ip),
                )
            sock.close()
            return
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.settings.send_buffer_bytes != -1:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.settings.send_buffer_bytes)
            local = _plain_address(sock.getsockname())
        except OSError:  # it is gone already
            self._counts.remove(ip)
            sock.close()
            return
        counters.accepted_connections += 1
        counters.open_connections += 1
        connection = Connection(self, listener, ip, _host_port(ip, port), local)
        connection.transport = PlainTransport(self.loop, sock, connection, counters)
        self._connections.add(connection)
        connection.transport.resume_reading()

    def on_closed(self, connection: Connection) -> None:
        was_full = self._counts.is_full
        self._connections.discard(connection)
        self._counts.remove(connection.ip)
        self.counters.open_connections -= 1
        if self.on_connection_closed is not None:
            self.on_connection_closed(connection.peer)
        if was_full:
            self._accept_all()
        if self._all_closed is not None and not self._connections:
            self._all_closed.set()

    # Idle connections.

    def _schedule_sweep(self) -> None:
        interval = MAX_SWEEP_INTERVAL_S
        if self.settings.max_idle_ms >= 0:
            wanted = self.settings.max_idle_ms / 1000 / SWEEPS_PER_IDLE_TIME
            interval = min(max(wanted, MIN_SWEEP_INTERVAL_S), interval)
        self._sweep_timer = self.loop.call_later(interval, self._on_sweep)

    def _on_sweep(self) -> None:
        self.sweep()
        self._schedule_sweep()

    def sweep(self) -> None:
        """Closes what nobody uses: one pass over all connections instead of a timer for each."""
        now = self.clock()
        holder = self.memory.privileged
        if isinstance(holder, Connection) and self.memory.waiting:
            last_progress = max(holder.last_active, self.memory.privileged_since)
            if last_progress < now - STALL_S:
                holder.fail(f"its request stalled for {STALL_S:.0f} s while others waited for memory")
        for connection in [one for one in self._connections if one.last_active < now - SILENT_S]:
            connection.transport.check_peer()
        if self.settings.max_idle_ms < 0:
            return
        since = now - self.settings.max_idle_ms / 1000
        for connection in [one for one in self._connections if one.is_idle(since)]:
            if connection.reader.has_partial:
                connection.fail("a request did not arrive completely within connections.max.idle.ms")
            else:
                log.info("%s closed: idle for connections.max.idle.ms", connection.description)
                connection.close()

    # The end.

    def stop_accepting(self) -> None:
        """Closes the listeners. Clients that come now are refused and go to another broker."""
        self._accept_none()
        self._close_listeners()

    def _close_listeners(self) -> None:
        for acceptor in self._acceptors:
            acceptor.socket.close()
        self._acceptors.clear()

    async def shutdown(self, timeout_s: float) -> None:
        """Stops accepting, lets requests under way finish until the timeout, then cancels what is left."""
        self.stop_accepting()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for connection in list(self._connections):
            connection.drain()
        if self._connections:
            self._all_closed = asyncio.Event()
            try:
                await asyncio.wait_for(self._all_closed.wait(), timeout_s)
            except TimeoutError:
                log.info("%d connections still had requests under way; closing them", len(self._connections))
        cancelled: list[asyncio.Future[Message | None]] = []
        for connection in list(self._connections):
            cancelled.extend(connection.waiting_futures())
            connection.close()
        if cancelled:
            await asyncio.wait(cancelled, timeout=CANCEL_GRACE_S)


def _plain_address(address: tuple[str, int]) -> tuple[str, int]:
    """Host and port; an IPv4 client of a dual-stack socket by its IPv4 address."""
    return address[0].removeprefix("::ffff:") if "." in address[0] else address[0], address[1]


def _host_port(ip: str, port: int) -> str:
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
