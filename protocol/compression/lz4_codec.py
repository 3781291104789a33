"""One lz4 frame with what Kafka's Java reader insists on: independent blocks, here of 64 KB, no checksums.

Kafka's level 9 is its default and means the fast compressor, for the sake of its older clients; every other
level selects the high-compression one.
"""

from __future__ import annotations

import lz4.frame

from protocol.errors import DecodeError

Buffer = bytes | bytearray | memoryview

_KAFKA_DEFAULT_LEVEL = 9
_FAST = 0
_MIN_HIGH = 3  # below, the library means its fast compressor
_PIECE = 256 * 1024  # output is taken in pieces of this size, so that a bomb is noticed early


def compress(data: Buffer, level: int | None) -> bytes:
    fast = level is None or level == _KAFKA_DEFAULT_LEVEL
    frame: bytes = lz4.frame.compress(
        data,
        compression_level=_FAST if fast else max(level or 0, _MIN_HIGH),
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return frame


def decompress(data: Buffer, max_size: int) -> bytes:
    context = lz4.frame.create_decompression_context()
    out = bytearray()
    view = memoryview(data)
    pos = 0
    finished = False
    while not finished:
        room = max_size - len(out) + 1
        try:
            piece, used, finished = lz4.frame.decompress_chunk(context, view[pos:], max_length=min(room, _PIECE))
        except RuntimeError as failure:
            raise DecodeError(f"damaged lz4 data: {failure}") from None
        out += piece
        pos += used
        if len(out) > max_size:
            raise DecodeError(f"lz4 data expands to more than {max_size} bytes")
        if not finished and not piece and not used:
            raise DecodeError("lz4 data ends early")
    if pos != len(view):
        raise DecodeError(f"{len(view) - pos} bytes follow the lz4 frame")
    return bytes(out)
