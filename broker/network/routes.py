"""From API key and version to what handles it: one dictionary look-up on the hot path."""

from __future__ import annotations

import inspect
import struct
from collections.abc import Callable, Mapping
from typing import Any

from broker.api import HandlerEntry, HandlerFunction
from broker.network.transport import Part
from protocol.errors import DecodeError, ErrorCode
from protocol.header import API_VERSIONS_KEY, response_header_version
from protocol.messages import API_NAMES, response_class
from protocol.schema import Message

JOIN_LIMIT = 4 * 1024
"""A response whose first run of bytes is shorter than this is joined with its header: copying it costs less than
another buffer in sendmsg."""

_HEADER_0 = struct.Struct(">ii")
_HEADER_1 = struct.Struct(">iiB")


class Route:
    """One version of one API: everything about it that does not change between requests."""

    __slots__ = (
        "_pack",
        "api_key",
        "function",
        "keeps_request",
        "repetition",
        "request",
        "response_version",
        "version",
    )

    def __init__(self, entry: HandlerEntry, api_key: int, version: int, response_version: int) -> None:
        self.api_key = api_key
        self.version = version
        self.response_version = response_version
        self.request = entry.request
        self.function: HandlerFunction = entry.function
        self.repetition = entry.repetition
        self.keeps_request = inspect.iscoroutinefunction(entry.function)
        """A coroutine starts after the receive buffer was given to others, so it gets a copy of its request."""
        self._pack: Callable[[int, int], bytes] = (
            _pack_header_1 if response_header_version(api_key, response_version) else _pack_header_0
        )

    @property
    def name(self) -> str:
        return f"{API_NAMES.get(self.api_key, self.api_key)} v{self.version}"

    def decode(self, frame: Any, body_offset: int) -> Message:
        return self.request.decode(frame, self.version, body_offset)

    def encode(self, correlation_id: int, response: Message) -> list[Part]:
        """The whole response frame, file slices untouched."""
        parts: list[Part] = response.encode_parts(self.response_version)
        size = 0
        for part in parts:
            size += len(part)
        header = self._pack(size, correlation_id)
        if parts and len(parts[0]) < JOIN_LIMIT and isinstance(parts[0], bytes):
            parts[0] = header + parts[0]
        else:
            parts.insert(0, header)
        return parts

    def failure(self) -> Message | None:
        """A response that says UNKNOWN_SERVER_ERROR, for the APIs whose response has a place for it."""
        response = response_class(self.api_key)
        for declared in response.FIELDS:
            if declared.name == "error_code" and self.response_version in declared.versions:
                return response(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)  # type: ignore[call-arg]
        return None


def _pack_header_0(size: int, correlation_id: int) -> bytes:
    return _HEADER_0.pack(size + 4, correlation_id)


def _pack_header_1(size: int, correlation_id: int) -> bytes:
    return _HEADER_1.pack(size + 5, correlation_id, 0)


class UnsupportedVersionRoute(Route):
    """ApiVersions in a version we do not know (KIP-511).

    The body cannot be read, so the handler gets an empty request; it sees from the context's version that it has to
    answer UNSUPPORTED_VERSION with our range. The answer is in version 0, which every client reads.
    """

    __slots__ = ()

    def decode(self, frame: Any, body_offset: int) -> Message:
        return self.request()


class Router:
    """Finds the route of a request, or says why there is none."""

    __slots__ = ("_handlers", "_routes")

    def __init__(self, handlers: Mapping[int, HandlerEntry]) -> None:
        self._handlers = handlers
        self._routes: dict[tuple[int, int], Route] = {}

    def find(self, api_key: int, version: int) -> Route:
        route = self._routes.get((api_key, version))
        if route is None:
            route = self._make(api_key, version)
            if type(route) is Route:  # the others are as many as a peer likes to invent
                self._routes[(api_key, version)] = route
        return route

    def _make(self, api_key: int, version: int) -> Route:
        entry = self._handlers.get(api_key)
        if entry is None:
            name = API_NAMES.get(api_key)
            raise DecodeError(f"API key {api_key} ({name}) is not served" if name else f"unknown API key {api_key}")
        if entry.min_version <= version <= entry.max_version:
            return Route(entry, api_key, version, version)
        if api_key == API_VERSIONS_KEY:
            return UnsupportedVersionRoute(entry, api_key, version, 0)
        raise DecodeError(
            f"{API_NAMES[api_key]} version {version} is not served, only {entry.min_version} to {entry.max_version}"
        )
