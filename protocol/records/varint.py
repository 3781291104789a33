"""Zig-zag variable-length integers, as records use them inside a batch.

Separate from the unsigned ones of the messages. These are called in a loop over a `bytes` of known end, where
running off the end is an IndexError and so costs no check per byte; the caller turns it into a DecodeError.
"""

from __future__ import annotations

from protocol.errors import DecodeError


def read_varint(buf: bytes, pos: int) -> tuple[int, int]:
    """A signed 32-bit varint at `pos`: (value, next position). IndexError when the buffer ends inside it."""
    byte = buf[pos]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos + 1
    raw = byte & 0x7F
    shift = 7
    while True:
        pos += 1
        byte = buf[pos]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise DecodeError("a varint is longer than 5 bytes")
    if raw > 0xFFFFFFFF:
        raise DecodeError("a varint exceeds 32 bits")
    return (raw >> 1) ^ -(raw & 1), pos + 1


def read_varlong(buf: bytes, pos: int) -> tuple[int, int]:
    """A signed 64-bit varint at `pos`: (value, next position). IndexError when the buffer ends inside it."""
    byte = buf[pos]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos + 1
    raw = byte & 0x7F
    shift = 7
    while True:
        pos += 1
        byte = buf[pos]
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise DecodeError("a varlong is longer than 10 bytes")
    if raw > 0xFFFFFFFFFFFFFFFF:
        raise DecodeError("a varlong exceeds 64 bits")
    return (raw >> 1) ^ -(raw & 1), pos + 1


def encode_varint(value: int) -> bytes:
    """The zig-zag varint of a signed integer of at most 64 bits; callers guarantee the range."""
    raw = (value << 1) ^ (value >> 63)
    if 0 <= raw < 0x80:
        return _ONE_BYTE[raw]
    out = bytearray()
    while raw > 0x7F:
        out.append((raw & 0x7F) | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


_ONE_BYTE = tuple(bytes((raw,)) for raw in range(0x80))
