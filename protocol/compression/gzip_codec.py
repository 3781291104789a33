"""gzip, as java.util.zip reads and writes it: one member, or several in a row."""

from __future__ import annotations

import zlib

from protocol.errors import DecodeError

Buffer = bytes | bytearray | memoryview

_GZIP_WINDOW = 31  # 32 KiB window (15) with a gzip wrapper (16)
# zlib hands back what follows a member as a copy; small slices keep a row of tiny members from costing
# quadratic time.
_SLICE = 16 * 1024


def compress(data: Buffer, level: int | None) -> bytes:
    stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
    return stream.compress(data) + stream.flush()


def decompress(data: Buffer, max_size: int) -> bytes:
    out = bytearray()
    view = memoryview(data)
    pos = 0
    while True:
        stream = zlib.decompressobj(_GZIP_WINDOW)
        while not stream.eof:
            piece = view[pos : pos + _SLICE]
            if not piece:
                raise DecodeError("gzip data ends early")
            try:
                out += stream.decompress(piece, max_size - len(out) + 1)
            except zlib.error as failure:
                raise DecodeError(f"damaged gzip data: {failure}") from None
            if len(out) > max_size:
                raise DecodeError(f"gzip data expands to more than {max_size} bytes")
            pos += len(piece) - len(stream.unused_data) - len(stream.unconsumed_tail)
        if pos == len(view):
            return bytes(out)
