"""RequestHeader: what precedes every message of its kind."""

from __future__ import annotations

from protocol.schema import Message, int16, int32, string


class RequestHeader(Message, versions="1-2", flexible="2+", strict=True):
    request_api_key: int = int16("0+")
    request_api_version: int = int16("0+")
    correlation_id: int = int32("0+")
    client_id: str | None = string("1+", nullable="1+", flexible=False)
