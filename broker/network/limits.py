"""Limits that concern all connections together: how many, how much memory, how many log lines."""

from __future__ import annotations

import logging
import socket
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Protocol

log = logging.getLogger(__name__)


class ConnectionCounts:
    """How many connections are open, in all and per client address (max.connections, max.connections.per.ip)."""

    __slots__ = ("_limits", "_max", "_max_per_ip", "_per_ip", "total")

    def __init__(self, max_connections: int, max_per_ip: int, overrides: Mapping[str, int]) -> None:
        self._max = max_connections
        self._max_per_ip = max_per_ip
        self._limits = {address: limit for name, limit in overrides.items() for address in _addresses(name)}
        self._per_ip: dict[str, int] = {}
        self.total = 0

    @property
    def is_full(self) -> bool:
        return self.total >= self._max

    def limit_of(self, ip: str) -> int:
        return self._limits.get(ip, self._max_per_ip)

    def try_add(self, ip: str) -> bool:
        """Counts a new connection, unless its address already has as many as it may."""
        open_now = self._per_ip.get(ip, 0)
        if open_now >= self.limit_of(ip):
            return False
        self._per_ip[ip] = open_now + 1
        self.total += 1
        return True

    def remove(self, ip: str) -> None:
        self.total -= 1
        left = self._per_ip[ip] - 1
        if left:
            self._per_ip[ip] = left
        else:
            del self._per_ip[ip]


def _addresses(name: str) -> set[str]:
    """The addresses an override means: it may name a host, as in Kafka. One that does not resolve limits nobody."""
    try:
        return {str(info[4][0]) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
    except OSError:
        log.warning("max.connections.per.ip.overrides names %s, which does not resolve; it has no effect", name)
        return set()


class Sender(Protocol):
    """A connection, as `ArrivingMemory` sees it."""

    def on_memory_granted(self) -> None: ...


class ArrivingMemory:
    """Bounds the memory held by requests that are still arriving, over all connections.

    Connections whose frame would grow the total beyond the limit stop reading and wait in line. Growing by what has
    arrived, rather than reserving what a peer announced, could leave every connection with half a request and none
    able to go on: so the first in line may exceed the limit, one at a time. It is closed if it then stalls (see
    SocketServer.sweep), so the line always moves.
    """

    __slots__ = ("_waiting", "held_bytes", "limit", "privileged", "privileged_since")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held_bytes = 0
        self.privileged: Sender | None = None
        self.privileged_since = 0.0
        self._waiting: OrderedDict[Sender, None] = OrderedDict()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def may_read(self, sender: Sender, now: float) -> bool:
        """Whether `sender`, which holds part of a request, may read more of it; otherwise it is in line."""
        if self.held_bytes < self.limit or sender is self.privileged:
            return True
        if self.privileged is None:
            self.privileged = sender
            self.privileged_since = now
            return True
        self._waiting[sender] = None
        return False

    def adjust(self, change: int) -> None:
        self.held_bytes += change

    def on_released(self, sender: Sender, now: float) -> None:
        """`sender` completed a request, or is gone. Its privilege passes on; all go on if there is room again."""
        self._waiting.pop(sender, None)
        if sender is self.privileged:
            self.privileged = None
        if not self._waiting:
            return
        if self.held_bytes < self.limit:
            waiting, self._waiting = self._waiting, OrderedDict()
            for one in waiting:
                one.on_memory_granted()
        elif self.privileged is None:
            first, _ = self._waiting.popitem(last=False)
            self.privileged = first
            self.privileged_since = now
            first.on_memory_granted()


class LineLimiter:
    """Lets through a burst of log lines and then a steady trickle, and tells how many it held back.

    A port scanner or a broken client in a loop makes thousands of broken connections a second; the log must stay
    readable, and writing it must not become the attack.
    """

    __slots__ = ("_burst", "_clock", "_per_second", "_suppressed", "_tokens", "_updated")

    def __init__(self, clock: Callable[[], float], burst: int = 100, per_second: float = 5.0) -> None:
        self._clock = clock
        self._burst = burst
        self._per_second = per_second
        self._tokens = float(burst)
        self._updated = clock()
        self._suppressed = 0

    def allows(self) -> bool:
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._updated) * self._per_second)
        self._updated = now
        if self._tokens < 1:
            self._suppressed += 1
            return False
        self._tokens -= 1
        if self._suppressed:
            log.warning("%d more lines about broken connections were left out", self._suppressed)
            self._suppressed = 0
        return True
