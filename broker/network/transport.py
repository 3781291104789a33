"""How bytes leave and enter a connection: the small interface, and the plaintext socket behind it.

A connection hands over parts, bytes and slices of files, and hears back through `Endpoint`. Everything that knows a
socket is here; a TLS transport offers the same methods over the loop's own TLS, reading slices instead of sending
them by sendfile.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from typing import Protocol

from broker.network.counters import NetworkCounters

SENDFILE_MINIMUM = 8 * 1024
"""Slices below this are read and sent with their neighbours: one sendmsg costs as much as a sendfile alone."""

MAX_IOVECS = 64
"""Buffers per sendmsg. Linux takes 1024, but a list that long only delays the first byte."""

COALESCE_BYTES = 256 * 1024
"""Enough for one sendmsg: about what a default send buffer can take."""

TURN_BYTES = 1024 * 1024
"""Sent to one peer before others get their turn: about one millisecond of sendfile."""


class FileRange(Protocol):
    """Bytes of a file that need not pass through Python; storage's FileSlice is one."""

    @property
    def position(self) -> int: ...
    def __len__(self) -> int: ...
    def fileno(self) -> int: ...
    def read(self) -> bytes: ...


Part = bytes | bytearray | memoryview | FileRange


class Endpoint(Protocol):
    """What a transport tells its connection."""

    def writable(self) -> memoryview:
        """Where to receive the next bytes."""

    def on_received(self, count: int) -> None: ...
    def on_eof(self) -> None: ...
    def on_lost(self, reason: str) -> None:
        """The transport failed. The connection closes it."""

    def on_sent(self) -> None:
        """Some queued bytes left; `unsent_bytes` fell."""


class Transport(Protocol):
    """What a connection needs of the way to its peer. No method calls back before it returns, except `flush`."""

    unsent_bytes: int
    """Memory held by parts not yet sent. Slices of files count nothing: they hold a descriptor, not bytes."""

    @property
    def unsent_parts(self) -> int: ...
    def send(self, parts: list[Part]) -> None:
        """Queues; nothing leaves before `flush`."""

    def flush(self) -> None: ...
    def resume_reading(self) -> None: ...
    def pause_reading(self) -> None: ...
    def check_peer(self) -> None: ...
    def close(self) -> None: ...


class PlainTransport:
    """A raw non-blocking socket on the loop's add_reader and add_writer.

    The socket is ours from accept to close: it is removed from the loop before it is closed, because a closed fd may
    come back as another connection's.
    """

    __slots__ = (
        "_counters",
        "_endpoint",
        "_fd",
        "_file_sent",
        "_loop",
        "_queue",
        "_reading",
        "_socket",
        "_writing",
        "unsent_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        endpoint: Endpoint,
        counters: NetworkCounters,
    ) -> None:
        self._loop = loop
        self._socket = sock
        self._fd = sock.fileno()
        self._endpoint = endpoint
        self._counters = counters
        self._queue: deque[Part] = deque()
        self._file_sent = 0
        """How much of the file slice at the head of the queue is out."""
        self._reading = False
        self._writing = False
        self.unsent_bytes = 0

    @property
    def unsent_parts(self) -> int:
        return len(self._queue)

    def resume_reading(self) -> None:
        if not self._reading and self._fd >= 0:
            self._reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def close(self) -> None:
        """Frees everything at once. What is unsent is lost: whoever minds drains first."""
        if self._fd < 0:
            return
        self.pause_reading()
        self._stop_writing()
        self._fd = -1
        self._queue.clear()
        self.unsent_bytes = 0
        self._socket.close()

    def _on_readable(self) -> None:
        """One receive per wake-up, so that a fast sender does not starve the others."""
        endpoint = self._endpoint
        try:
            count = self._socket.recv_into(endpoint.writable())
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            endpoint.on_lost(_describe(error))
            return
        if count:
            self._counters.received_bytes += count
            endpoint.on_received(count)
        else:
            endpoint.on_eof()

    def check_peer(self) -> None:
        """Notices a reset that no event tells of. uvloop stops watching a socket on its first error, and runs the
        reader once: if that receives the bytes before the reset, the reset itself is never seen. Nor is it while
        reading is paused.
        """
        if self._fd >= 0:
            code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._endpoint.on_lost(os.strerror(code))

    def send(self, parts: list[Part]) -> None:
        queue = self._queue
        for part in parts:
            size = len(part)
            if size:
                queue.append(part)
                if isinstance(part, (bytes, bytearray, memoryview)):
                    self.unsent_bytes += size

    def flush(self) -> None:
        """Writes what the socket takes; the rest goes when it takes more."""
        if self._writing or not self._queue:
            return
        self._write_turn()

    def _on_writable(self) -> None:
        self._write_turn()
        if self._fd >= 0:
            self._endpoint.on_sent()

    def _write_turn(self) -> None:
        queue = self._queue
        budget = TURN_BYTES
        try:
            while queue and budget > 0:
                sent = self._write_some()
                if not sent:
                    break
                budget -= sent
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._endpoint.on_lost(_describe(error))
            return
        if not queue:
            self._stop_writing()
        elif not self._writing:
            self._writing = True
            self._loop.add_writer(self._fd, self._on_writable)

    def _write_some(self) -> int:
        """One system call's worth. Returns 0 if a file gave less than its slice promised and the peer is lost."""
        head = self._queue[0]
        if isinstance(head, (bytes, bytearray, memoryview)) or len(head) < SENDFILE_MINIMUM:
            return self._write_buffers()
        return self._write_file(head)

    def _write_file(self, part: FileRange) -> int:
        done = self._file_sent
        left = len(part) - done
        sent = os.sendfile(self._fd, part.fileno(), part.position + done, min(left, TURN_BYTES))
        if not sent:
            raise OSError("the log was truncated while it was being sent")
        counters = self._counters
        counters.sendfile_calls += 1
        counters.sendfile_bytes += sent
        counters.sent_bytes += sent
        if sent == left:
            self._queue.popleft()
            self._file_sent = 0
        else:
            self._file_sent = done + sent
        return sent

    def _write_buffers(self) -> int:
        """Sends the run of bytes at the head of the queue, small slices read in between."""
        queue = self._queue
        buffers: list[bytes | bytearray | memoryview] = []
        size = 0
        more = 0
        for index, part in enumerate(queue):
            if not isinstance(part, (bytes, bytearray, memoryview)):
                if len(part) >= SENDFILE_MINIMUM:
                    more = socket.MSG_MORE
                    break
                part = queue[index] = self._read_small(part)
            buffers.append(part)
            size += len(part)
            if size >= COALESCE_BYTES or len(buffers) == MAX_IOVECS:
                break
        if len(buffers) == 1:
            sent = self._socket.send(buffers[0], more)
        else:
            sent = self._socket.sendmsg(buffers, (), more)
        self._counters.sent_bytes += sent
        self.unsent_bytes -= sent
        if sent == size:
            for _ in buffers:
                queue.popleft()
            return sent
        left = sent
        while left >= len(buffers[0]):
            left -= len(buffers.pop(0))
            queue.popleft()
        if left:
            queue[0] = memoryview(buffers[0])[left:]
        return sent

    def _read_small(self, part: FileRange) -> bytes:
        data = part.read()
        if len(data) != len(part):
            raise OSError("the log was truncated while it was being sent")
        self._counters.pread_bytes += len(data)
        self.unsent_bytes += len(data)
        return data

    def _stop_writing(self) -> None:
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)


def _describe(error: OSError) -> str:
    return error.strerror or str(error)
