"""zstd: one frame when writing, any number in a row when reading; the content size is never relied upon."""

from __future__ import annotations

import zstandard

from protocol.errors import DecodeError

Buffer = bytes | bytearray | memoryview

_DEFAULT_LEVEL = 3
# The densest zstd block is four bytes for 128 KiB (a repeated byte). The library returns all that its input
# yields, so the input is given in slices which cannot expand beyond the room that is left.
_MAX_EXPANSION = 32 * 1024
_MIN_SLICE = 64
_MAX_SLICE = 16 * 1024


def compress(data: Buffer, level: int | None) -> bytes:
    return zstandard.ZstdCompressor(level=_DEFAULT_LEVEL if level is None else level).compress(data)


def decompress(data: Buffer, max_size: int) -> bytes:
    decompressor = zstandard.ZstdDecompressor()
    out = bytearray()
    view = memoryview(data)
    pos = 0
    while True:
        frame = decompressor.decompressobj()
        while not frame.eof:
            room = max_size - len(out)
            piece = view[pos : pos + max(_MIN_SLICE, min(_MAX_SLICE, room // _MAX_EXPANSION))]
            if not piece:
                raise DecodeError("zstd data ends early")
            try:
                out += frame.decompress(piece)
            except zstandard.ZstdError as failure:
                raise DecodeError(f"damaged zstd data: {failure}") from None
            if len(out) > max_size:
                raise DecodeError(f"zstd data expands to more than {max_size} bytes")
            pos += len(piece) - len(frame.unused_data)
        if pos == len(view):
            return bytes(out)
