"""Receive buffers for large requests, used again.

A new megabyte costs the kernel a page fault for each of its 256 pages, several times what receiving into it costs; so
buffers that a request has left are kept for the next one. Sizes are powers of two, and what is kept is bounded.
"""

from __future__ import annotations

SMALLEST = 64 * 1024
LARGEST = 2 * 1024 * 1024
"""Enough for a batch of max.message.bytes (1 MiB) with its request around it; larger requests are rare."""

KEPT_BYTES = 4 * 1024 * 1024
"""Kept for all connections together: a few of any size, little beside what the process needs anyway."""


class BufferPool:
    """Owned by the socket server. A buffer belongs to whoever took it until it is given back."""

    __slots__ = ("_free", "kept_bytes")

    def __init__(self) -> None:
        self._free: dict[int, list[bytearray]] = {}
        self.kept_bytes = 0

    def take(self, size: int) -> bytearray:
        """A buffer of at least `size` bytes, with whatever was in it before."""
        if size > LARGEST:
            return bytearray(size)
        rounded = max(SMALLEST, 1 << (size - 1).bit_length())
        free = self._free.get(rounded)
        if free:
            self.kept_bytes -= rounded
            return free.pop()
        return bytearray(rounded)

    def give_back(self, buffer: bytearray) -> None:
        size = len(buffer)
        if size > LARGEST or self.kept_bytes + size > KEPT_BYTES:
            return
        self.kept_bytes += size
        self._free.setdefault(size, []).append(buffer)
