"""ExpireDelegationToken (API key 40): request and response."""

from __future__ import annotations

from protocol.schema import Message, int16, int32, int64, raw


class ExpireDelegationTokenRequest(Message, key=40, versions="1-2", flexible="2+", strict=True):
    hmac: bytes = raw("0+")
    expiry_time_period_ms: int = int64("0+")


class ExpireDelegationTokenResponse(Message, key=40, versions="1-2", flexible="2+"):
    error_code: int = int16("0+")
    expiry_timestamp_ms: int = int64("0+")
    throttle_time_ms: int = int32("0+")
