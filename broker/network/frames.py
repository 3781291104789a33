"""Frames of the wire: four bytes of length, then that many bytes. Sans-IO: knows buffers, not sockets.

Who reads a socket asks for `writable()`, puts bytes there, says `received(n)`, takes frames with `next_frame()`
until there is none or it wants no more, and then calls `park()`. That is also the shape of asyncio's
BufferedProtocol, so a TLS transport drives it the same way.

All connections of a server share one scratch buffer: an idle connection holds no memory at all. What is left of an
incomplete frame is parked as bytes of its own; once it is large it gets a buffer that grows with what has *arrived*.
A peer that claims 100 MB and sends ten bytes costs ten bytes.
"""

from __future__ import annotations

import struct

from broker.network.buffers import BufferPool
from protocol.errors import DecodeError

SCRATCH_SIZE = 128 * 1024
"""One receive call's worth: Kafka's default receive buffer of 100 KiB fits, and it stays within an L2 cache."""

PARK_LIMIT = 16 * 1024
"""An incomplete frame with more than this no longer travels through the scratch buffer, where each wake-up copies
it anew, but into a buffer of its own."""

GROWTH = 2
"""A buffer of its own holds at least so many times what has arrived (and is rounded up to what the pool keeps)."""

_LENGTH = struct.Struct(">i").unpack_from

# Bytes that people send by mistake. Read as a length each is far above any sensible limit, the lowest being TLS.
_HTTP_VERBS = frozenset((b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI "))
_TLS_HANDSHAKE = b"\x16\x03"
_LOWEST_FOREIGN = 0x16030000


class FrameError(DecodeError):
    """The byte stream is not a sequence of frames that we take; nothing after it can be trusted."""


def _refusal(head: bytes, length: int, max_size: int) -> FrameError | None:
    """Why a frame that starts with `head` is not taken, in words that help whoever reads the log."""
    if head in _HTTP_VERBS:
        return FrameError(
            "looks like an HTTP request; this port speaks the Kafka protocol (a proxy, a browser or a health check?)"
        )
    if head[:2] == _TLS_HANDSHAKE:
        return FrameError("looks like a TLS handshake on a plaintext listener; check security.protocol of the client")
    if length < 0:
        return FrameError(f"negative frame length {length}")
    if length > max_size:
        return FrameError(f"frame of {length} bytes is larger than socket.request.max.bytes={max_size}")
    return None


class FrameReader:
    """Cuts one connection's byte stream into frames.

    Invariant: between `park()` and the next `writable()` or `unpark()` nothing of this connection is in the shared
    scratch buffer, so other connections may use it. A frame returned by `next_frame()` is a view that is valid until
    `park()`.
    """

    __slots__ = (
        "_end",
        "_frame_size",
        "_max_size",
        "_own",
        "_parked",
        "_pool",
        "_scratch",
        "_spent",
        "_start",
        "_suspicious",
        "_view",
    )

    def __init__(self, scratch: bytearray, max_size: int, pool: BufferPool) -> None:
        self._scratch = scratch
        self._pool = pool
        self._view = memoryview(scratch)
        self._max_size = max_size
        self._suspicious = min(max_size, _LOWEST_FOREIGN)
        self._start = 0
        self._end = 0
        self._parked = b""
        self._own: bytearray | None = None
        self._spent: bytearray | None = None
        """Holds the frame taken last; goes back to the pool when that is no longer valid."""
        self._frame_size = 0
        """With a buffer of our own: length of the whole frame, its four length bytes included."""

    @property
    def held_bytes(self) -> int:
        """Memory this connection holds for requests that are not complete or not yet taken."""
        return len(self._own) if self._own is not None else len(self._parked)

    @property
    def is_large(self) -> bool:
        """Whether the frame under way has a buffer of its own."""
        return self._own is not None

    @property
    def has_partial(self) -> bool:
        """Whether the stream stops in the middle of something."""
        return self._own is not None or bool(self._parked)

    def writable(self) -> memoryview:
        """Where the next bytes go. Never empty."""
        own = self._own
        if own is not None:
            end = self._end
            if end == len(own):
                grown = self._pool.take(min(self._frame_size, GROWTH * end))
                grown[:end] = own
                self._pool.give_back(own)
                self._own = own = grown
            return memoryview(own)[end : self._frame_size]
        parked = self._parked
        if parked:
            # Not given up yet: if nothing arrives after all, received() is never called.
            size = len(parked)
            self._view[:size] = parked
            return self._view[size:]
        return self._view

    def unpark(self) -> None:
        """Puts what was parked back into the scratch buffer, to take frames from it without new bytes."""
        parked = self._parked
        if parked:
            self._view[: len(parked)] = parked
            self.received(0)

    def received(self, count: int) -> None:
        """So many bytes are now in what `writable()` returned."""
        if self._parked:
            self._end = len(self._parked) + count
            self._parked = b""
        else:
            self._end += count

    def next_frame(self) -> memoryview | None:
        """The next complete frame without its length, or None when more bytes are needed."""
        own = self._own
        if own is not None:
            if self._end < self._frame_size:
                return None
            self._own, self._spent = None, own
            self._start = self._end = 0
            return memoryview(own)[4 : self._frame_size]
        start = self._start
        body = start + 4
        if body > self._end:
            return None
        length: int = _LENGTH(self._scratch, start)[0]
        if not 0 <= length <= self._suspicious:
            error = _refusal(bytes(self._view[start:body]), length, self._max_size)
            if error is not None:
                raise error
        stop = body + length
        if stop > self._end:
            return None
        self._start = stop
        return self._view[body:stop]

    def park(self) -> None:
        """Leaves the scratch buffer to others: copies out whatever was not taken."""
        if self._spent is not None:
            self._pool.give_back(self._spent)
            self._spent = None
        if self._own is not None:
            return
        start, end = self._start, self._end
        self._start = self._end = 0
        rest = end - start
        if not rest:
            return
        if rest > PARK_LIMIT:
            length: int = _LENGTH(self._scratch, start)[0]
            size = 4 + length
            # A complete frame, or one that next_frame() will refuse, stays parked: it is only waiting for its turn.
            if size > rest and length <= self._max_size:
                own = self._pool.take(min(size, GROWTH * rest))
                own[:rest] = self._view[start:end]
                self._own = own
                self._end = rest
                self._frame_size = size
                return
        self._parked = bytes(self._view[start:end])

    def clear(self) -> None:
        """Frees everything; the connection is gone."""
        for buffer in (self._own, self._spent):
            if buffer is not None:
                self._pool.give_back(buffer)
        self._parked = b""
        self._own = self._spent = None
        self._start = self._end = 0
