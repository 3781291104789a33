"""SaslAuthenticate (API key 36): request and response."""

from __future__ import annotations

from protocol.schema import Message, int16, int64, raw, string


class SaslAuthenticateRequest(Message, key=36, versions="0-2", flexible="2+", strict=True):
    auth_bytes: bytes = raw("0+")


class SaslAuthenticateResponse(Message, key=36, versions="0-2", flexible="2+"):
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    auth_bytes: bytes = raw("0+")
    session_lifetime_ms: int = int64("1+", ignorable=True)
