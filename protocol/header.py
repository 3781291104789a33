"""Request and response headers: which version goes with which API version, and a fast parser.

Every request passes through `parse_request_header`, so it is written out by hand around one struct call.
"""

from __future__ import annotations

import struct

from protocol.errors import DecodeError
from protocol.messages import API_NAMES, request_class
from protocol.varint import decode_uvarint

API_VERSIONS_KEY = 18

_FIXED = struct.Struct(">hhih")
_CORRELATION = struct.Struct(">i").pack

_first_flexible: dict[int, int] = {}


def first_flexible_version(api_key: int) -> int:
    """The lowest version with tagged fields; beyond any version for an API that has none."""
    found = _first_flexible.get(api_key)
    if found is None:
        lowest, highest = request_class(api_key).FLEXIBLE
        found = _first_flexible[api_key] = lowest if lowest <= highest else 0x7FFF
    return found


def request_header_version(api_key: int, api_version: int) -> int:
    return 2 if api_version >= first_flexible_version(api_key) else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """ApiVersions responses keep header 0: a client cannot know yet which versions we speak (KIP-511)."""
    if api_key == API_VERSIONS_KEY:
        return 0
    return 1 if api_version >= first_flexible_version(api_key) else 0


def peek_api(frame: memoryview) -> tuple[int, int, int]:
    """API key, version and correlation id, which stand first in every header."""
    if len(frame) < 8:
        raise DecodeError(f"a request of {len(frame)} bytes has no room for its header")
    key, version, correlation_id, _ = _FIXED.unpack_from(bytes(frame[:8]) + b"\0\0")
    return key, version, correlation_id


def parse_request_header(frame: memoryview) -> tuple[int, int, int, str | None, int]:
    """API key, version, correlation id, client id, and where the body starts.

    An unknown API key is the caller's to refuse: its header version is unknown, so the body offset is that of
    version 1.
    """
    try:
        key, version, correlation_id, length = _FIXED.unpack_from(frame)
        position = 10
        client_id = None
        if length >= 0:
            position += length
            if position > len(frame):
                raise DecodeError("the client id is longer than the request")
            client_id = str(frame[10:position], "utf-8")
        # Tagged fields: the header is flexible exactly when the body is.
        if key in API_NAMES and version >= first_flexible_version(key):
            if frame[position] == 0:
                position += 1
            else:
                position = _skip_tags(frame, position)
    except (struct.error, IndexError):
        raise DecodeError("the request header is cut off") from None
    except UnicodeDecodeError as error:
        raise DecodeError(f"the client id is not UTF-8: {error}") from None
    return key, version, correlation_id, client_id, position


def _skip_tags(frame: memoryview, position: int) -> int:
    count, position = decode_uvarint(frame, position)
    for _ in range(count):
        _, position = decode_uvarint(frame, position)
        size, position = decode_uvarint(frame, position)
        position += size
        if position > len(frame):
            raise DecodeError("a tagged field of the header is longer than the request")
    return position


def encode_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    header = _CORRELATION(correlation_id)
    return header + b"\0" if response_header_version(api_key, api_version) else header


def encode_request(api_key: int, api_version: int, correlation_id: int, client_id: str | None, body: bytes) -> bytes:
    """A whole frame, length included: what a client sends."""
    name = b"" if client_id is None else client_id.encode()
    head = _FIXED.pack(api_key, api_version, correlation_id, -1 if client_id is None else len(name)) + name
    if request_header_version(api_key, api_version) == 2:
        head += b"\0"
    return struct.pack(">i", len(head) + len(body)) + head + body
