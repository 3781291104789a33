"""ResponseHeader: what precedes every message of its kind."""

from __future__ import annotations

from protocol.schema import Message, int32


class ResponseHeader(Message, versions="0-1", flexible="1+", strict=True):
    correlation_id: int = int32("0+")
