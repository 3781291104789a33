"""`python -m bench.scaling`: how one Barnabas node grows with connections, partitions and record size.

The raw client loads one broker; throughput and the broker's CPU per request are printed as tables for
docs/performance.md. Nothing is compared with Apache Kafka here: `python -m bench` does that.
"""

from __future__ import annotations

import selectors
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))  # the server processes live in tests/support

from bench import raw
from bench.lab import Side
from bench.servers import Barnabas

CONNECTIONS = (1, 10, 100, 1000)
PARTITIONS = (1, 10, 100, 1000, 4000)
RECORD_SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
BATCH = 16_384
SECONDS = 3.0
WARM_UP_S = 0.5


@dataclass(frozen=True, slots=True)
class Result:
    requests_per_s: float
    mb_per_s: float
    cpu_us: float
    """Of the broker, per request."""

    def cells(self) -> str:
        return f"{self.requests_per_s:,.0f} | {self.mb_per_s:,.0f} | {self.cpu_us:,.1f}"


class _Client:
    """One connection with one request under way; every response of it has the same size."""

    __slots__ = ("answered", "connection", "frames", "pending", "response_size", "turn")

    def __init__(self, port: int, frames: list[bytes], turn: int) -> None:
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=raw.TIMEOUT_S)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.frames = frames
        self.turn = turn
        self.pending = self.answered = 0
        self.connection.sendall(self._next())
        self.response_size = len(raw.read_frame(self.connection))
        self.connection.sendall(self._next())

    def _next(self) -> bytes:
        self.turn += 1
        return self.frames[self.turn % len(self.frames)]

    def on_readable(self, buffer: bytearray) -> None:
        received = self.connection.recv_into(buffer)
        if not received:
            raise raw.WrongAnswer("the connection was closed")
        done, self.pending = divmod(self.pending + received, self.response_size)
        if done:
            self.answered += done
            self.connection.sendall(self._next())


def load(side: Side, frames: list[bytes], connections: int, batch_bytes: int) -> Result:
    """Each connection sends its next request when the last is answered, going round `frames`."""
    buffer = bytearray(1 << 16)
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        clients = []
        for number in range(connections):
            client = _Client(side.port, frames, number * 7)
            stack.callback(client.connection.close)
            selector.register(client.connection, selectors.EVENT_READ, client)
            clients.append(client)
        _serve(selector, buffer, WARM_UP_S)
        before, cpu = sum(client.answered for client in clients), side.cpu()
        seconds = _serve(selector, buffer, SECONDS)
        requests = sum(client.answered for client in clients) - before
        spent = side.cpu() - cpu
    return Result(requests / seconds, requests * batch_bytes / seconds / 1e6, spent / requests * 1e6)


def _serve(selector: selectors.BaseSelector, buffer: bytearray, seconds: float) -> float:
    begin = time.perf_counter()
    while (now := time.perf_counter()) - begin < seconds:
        for key, _ in selector.select(1):
            key.data.on_readable(buffer)
    return now - begin


def connections(side: Side) -> list[tuple[str, Result]]:
    batch = raw.make_batch(BATCH)
    side.create_topic("scaling-connections", 6)
    frames = [raw.produce_frame("scaling-connections", batch.data, "scaling", index) for index in range(6)]
    return [(f"{count:,}", load(side, frames, count, len(batch.data))) for count in CONNECTIONS]


def partitions(side: Side) -> list[tuple[str, Result]]:
    batch = raw.make_batch(BATCH)
    results = []
    for count in PARTITIONS:
        topic = f"scaling-partitions-{count}"
        side.create_topic(topic, count)
        frames = [raw.produce_frame(topic, batch.data, "scaling", index) for index in range(count)]
        results.append((f"{count:,}", load(side, frames, 5, len(batch.data))))
        side.delete_topic(topic)
    return results


def record_sizes(side: Side) -> list[tuple[str, Result]]:
    """One record per batch: what a producer without batching costs."""
    results = []
    for size in RECORD_SIZES:
        topic = f"scaling-records-{size}"
        side.create_topic(topic)
        batch = raw.make_batch(size + raw.BATCH_OVERHEAD, record_size=size)
        frames = [raw.produce_frame(topic, batch.data, "scaling")]
        results.append((f"{size:,} B", load(side, frames, 5, len(batch.data))))
        side.delete_topic(topic)
    return results


TABLES: tuple[tuple[str, str, Callable[[Side], list[tuple[str, Result]]]], ...] = (
    ("Connections, each with one 16 KB batch under way, 6 partitions", "connections", connections),
    ("Partitions, 16 KB batches in turn over 5 connections", "partitions", partitions),
    ("Record size, one record per batch, 5 connections, one partition", "record", record_sizes),
)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="barnabas-scaling-") as name:
        server = Barnabas(Path(name))
        server.start()
        try:
            side = Side("barnabas", server)
            for title, column, measure in TABLES:
                print(f"\n{title}:\n\n| {column} | requests/s | MB/s | broker CPU, us/request |\n|---:|---:|---:|---:|")
                for label, result in measure(side):
                    print(f"| {label} | {result.cells()} |", flush=True)
        finally:
            server.close()


if __name__ == "__main__":
    main()
