"""What the network layer counts. Plain integers on one object: an increment must cost next to nothing."""

from __future__ import annotations


class NetworkCounters:
    """Totals since start, except `open_connections`."""

    __slots__ = (
        "accepted_connections",
        "broken_connections",
        "failed_requests",
        "open_connections",
        "pread_bytes",
        "received_bytes",
        "refused_connections",
        "requests",
        "sendfile_bytes",
        "sendfile_calls",
        "sent_bytes",
    )

    def __init__(self) -> None:
        self.accepted_connections = 0
        self.refused_connections = 0
        """Closed at once because of max.connections.per.ip."""
        self.open_connections = 0
        self.broken_connections = 0
        """Closed by us because of what the peer sent."""
        self.requests = 0
        self.failed_requests = 0
        """Requests whose handler raised: each is a bug of ours."""
        self.received_bytes = 0
        self.sent_bytes = 0
        """All bytes written to sockets, those by sendfile included."""
        self.sendfile_calls = 0
        self.sendfile_bytes = 0
        self.pread_bytes = 0
        """Record bytes that went through Python because the slice was small."""

    def snapshot(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.__slots__}
