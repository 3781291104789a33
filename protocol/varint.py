"""Unsigned variable-length integers of flexible versions: seven bits a byte, least significant first."""

from __future__ import annotations

from typing import Any

from protocol.errors import DecodeError

MAX_BYTES = 5  # 32 bits at seven a byte


def encode_uvarint(value: int) -> bytes:
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))


def decode_uvarint(data: Any, position: int) -> tuple[int, int]:
    """The value and the position after it. A varint that never ends is the peer's error."""
    value = shift = 0
    for _ in range(MAX_BYTES):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise DecodeError("an unsigned varint over 32 bits")
            return value, position
        shift += 7
    raise DecodeError("an unsigned varint that does not end within 5 bytes")
