"""GetTelemetrySubscriptions (API key 71): request and response."""

from __future__ import annotations

from protocol.schema import Message, array, boolean, int8, int16, int32, string, uuid
from protocol.uuids import Uuid


class GetTelemetrySubscriptionsRequest(Message, key=71, versions="0", flexible="0+", strict=True):
    client_instance_id: Uuid = uuid("0+")


class GetTelemetrySubscriptionsResponse(Message, key=71, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    client_instance_id: Uuid = uuid("0+")
    subscription_id: int = int32("0+")
    accepted_compression_types: list[int] = array(int8, "0+")
    push_interval_ms: int = int32("0+")
    telemetry_max_bytes: int = int32("0+")
    delta_temporality: bool = boolean("0+")
    requested_metrics: list[str] = array(string, "0+")
