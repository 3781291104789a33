"""Envelope (API key 58): request and response."""

from __future__ import annotations

from protocol.schema import Message, int16, raw


class EnvelopeRequest(Message, key=58, versions="0", flexible="0+", strict=True):
    request_data: bytes = raw("0+")
    request_principal: bytes | None = raw("0+", nullable="0+")
    client_host_address: bytes = raw("0+")


class EnvelopeResponse(Message, key=58, versions="0", flexible="0+"):
    response_data: bytes | None = raw("0+", nullable="0+", default=None)
    error_code: int = int16("0+")
