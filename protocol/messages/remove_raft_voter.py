"""RemoveRaftVoter (API key 81): request and response."""

from __future__ import annotations

from protocol.schema import Message, int16, int32, string, uuid
from protocol.uuids import Uuid


class RemoveRaftVoterRequest(Message, key=81, versions="0", flexible="0+", strict=True):
    cluster_id: str | None = string("0+", nullable="0+")
    voter_id: int = int32("0+")
    voter_directory_id: Uuid = uuid("0+")


class RemoveRaftVoterResponse(Message, key=81, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", ignorable=True)
