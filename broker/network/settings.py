"""The settings the network layer reads, in one frozen value with Kafka's names and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MIB = 1024 * 1024
UNLIMITED = 2**31 - 1

QUEUED_BYTES_FLOOR = 128 * MIB
"""Where queued.max.request.bytes is unset: memory for requests that are still arriving, over all connections. One
request of the default socket.request.max.bytes (100 MiB) always fits, and a machine that runs a broker has it."""


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    request_max_bytes: int = 100 * MIB
    """socket.request.max.bytes"""
    send_buffer_bytes: int = 100 * 1024
    """socket.send.buffer.bytes; -1 leaves the system's choice, which also adapts to the peer."""
    receive_buffer_bytes: int = 100 * 1024
    """socket.receive.buffer.bytes; -1 as above."""
    listen_backlog: int = 50
    """socket.listen.backlog.size"""
    max_connections: int = UNLIMITED
    """max.connections"""
    max_connections_per_ip: int = UNLIMITED
    """max.connections.per.ip"""
    max_connections_overrides: Mapping[str, int] = field(default_factory=dict)
    """max.connections.per.ip.overrides: by address or host name."""
    max_idle_ms: int = 600_000
    """connections.max.idle.ms; negative: never."""
    queued_max_bytes: int = -1
    """queued.max.request.bytes; -1: QUEUED_BYTES_FLOOR, or the largest single request if that is more."""

    @property
    def arriving_bytes_limit(self) -> int:
        if self.queued_max_bytes > 0:
            return self.queued_max_bytes
        return max(QUEUED_BYTES_FLOOR, self.request_max_bytes)
