"""A client of one blocking socket that speaks our own codec: for requests that no real client would send."""

from __future__ import annotations

import itertools
import socket
import struct
from types import TracebackType
from typing import Any, Self, TypeVar

from protocol.header import encode_request, response_header_version
from protocol.messages import response_class
from protocol.records import build_batch
from protocol.schema import Message

M = TypeVar("M", bound=Message)

TIMEOUT_S = 10


class Wire:
    def __init__(self, port: int, host: str = "127.0.0.1", timeout_s: float = TIMEOUT_S) -> None:
        self.socket = socket.create_connection((host, port), timeout=timeout_s)
        self._ids = itertools.count(1)
        self.answered = 0
        """The number of the request that the last response belongs to."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.socket.close()

    def ask(self, request: Message, version: int | None = None) -> Any:
        """The response, decoded; ConnectionError when the broker closed instead."""
        version = type(request).MAX_VERSION if version is None else version
        self.send_request(request, version)
        return self.read_response(request.API_KEY, version)

    def send_request(self, request: Message, version: int) -> int:
        """Its number, which comes back with the response."""
        number = next(self._ids)
        body = request.encode(version)
        self.socket.sendall(encode_request(request.API_KEY, version, number, "wire-test", body))
        return number

    def read_response(self, api_key: int, version: int) -> Any:
        (size,) = struct.unpack(">i", self._read(4))
        data = self._read(size)
        (self.answered,) = struct.unpack_from(">i", data)
        start = 5 if response_header_version(api_key, version) else 4
        return response_class(api_key).decode(data, version, start)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return data

    def is_closed_by_peer(self) -> bool:
        """Whether the broker closed its side, waiting for it as long as the timeout."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True


def ask(
    port: int,
    request: Message,
    version: int | None = None,
    *,
    timeout_s: float = TIMEOUT_S,
    host: str = "127.0.0.1",
) -> Any:
    """One question over a connection of its own. OSError when there is no answer."""
    with Wire(port, host, timeout_s=timeout_s) as wire:
        return wire.ask(request, version)


class OneRecord:
    """The smallest thing that `build_batch` takes for a record."""

    def __init__(self, value: bytes | None = b"v", key: bytes | None = None, timestamp: int = 0) -> None:
        self.value = value
        self.key = key
        self.timestamp = timestamp
        self.headers: tuple[Any, ...] = ()


def batch(*values: bytes, **options: Any) -> bytearray:
    return build_batch([OneRecord(value) for value in values or (b"v",)], **options)
