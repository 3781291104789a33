"""Snappy in the framing of the xerial Java library, which Kafka's clients write.

A 16-byte header (magic, version, lowest compatible version), then blocks: an int32 length and that many bytes
of raw snappy. Some clients send one raw snappy block without any framing, and Kafka's readers take that too.
"""

from __future__ import annotations

from struct import Struct

import cramjam

from protocol.errors import DecodeError

Buffer = bytes | bytearray | memoryview

_MAGIC = b"\x82SNAPPY\x00"
_VERSIONS = Struct(">ii")
_LENGTH = Struct(">i")
_VERSION = 1
_BLOCK = 32 * 1024  # the block size of Kafka's own producers
_HEADER = _MAGIC + _VERSIONS.pack(_VERSION, _VERSION)


def compress(data: Buffer, level: int | None) -> bytes:
    view = memoryview(data)
    parts = [_HEADER]
    for start in range(0, len(view), _BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _BLOCK]))
        parts.append(_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def decompress(data: Buffer, max_size: int) -> bytes:
    view = memoryview(data)
    if view[: len(_MAGIC)] != _MAGIC:
        return _block(view, max_size)
    if len(view) < len(_HEADER):
        raise DecodeError("snappy data ends early")
    _check_versions(view, 0)
    out = bytearray()
    pos = len(_HEADER)
    end = len(view)
    while pos < end:
        if view[pos : pos + len(_MAGIC)] == _MAGIC and end - pos >= len(_HEADER):
            _check_versions(view, pos)  # streams may be concatenated; the magic is a negative block length
            pos += len(_HEADER)
            continue
        if end - pos < _LENGTH.size:
            raise DecodeError("snappy data ends early")
        (length,) = _LENGTH.unpack_from(view, pos)
        pos += _LENGTH.size
        if not 0 < length <= end - pos:
            raise DecodeError(f"a snappy block claims {length} bytes, {end - pos} are left")
        out += _block(view[pos : pos + length], max_size - len(out))
        pos += length
    return bytes(out)


def _check_versions(view: memoryview, pos: int) -> None:
    version, _ = _VERSIONS.unpack_from(view, pos + len(_MAGIC))
    if version < _VERSION:
        raise DecodeError(f"snappy framing of version {version}")


def _block(block: memoryview, max_size: int) -> bytes:
    """One raw block. Its claimed size is checked first, because the library allocates that much.

    Three bytes of snappy (a copy with a two-byte offset) expand to 64 at most: a claim beyond that is a lie.
    """
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > max_size:
            raise DecodeError("snappy data expands to more than is allowed")
        if size * 3 > len(block) * 64:
            raise DecodeError(f"a snappy block of {len(block)} bytes claims to hold {size}")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as failure:
        raise DecodeError(f"damaged snappy data: {failure}") from None
