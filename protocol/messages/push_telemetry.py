"""PushTelemetry (API key 72): request and response."""

from __future__ import annotations

from protocol.schema import Message, boolean, int8, int16, int32, raw, uuid
from protocol.uuids import Uuid


class PushTelemetryRequest(Message, key=72, versions="0", flexible="0+", strict=True):
    client_instance_id: Uuid = uuid("0+")
    subscription_id: int = int32("0+")
    terminating: bool = boolean("0+")
    compression_type: int = int8("0+")
    metrics: bytes = raw("0+")


class PushTelemetryResponse(Message, key=72, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
