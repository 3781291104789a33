"""GroupMetadata (record type 2): key and value as a coordinator stores them."""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int32, int64, raw, string


class GroupMetadataKey(Message, key=2, versions="0", strict=True):
    group: str = string("0")


class MemberMetadata(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
    client_id: str = string("0+")
    client_host: str = string("0+")
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32("0+")
    subscription: bytes = raw("0+")
    assignment: bytes = raw("0+")


class GroupMetadataValue(Message, key=2, versions="0-4", flexible="4+", strict=True):
    protocol_type: str = string("0+")
    generation: int = int32("0+")
    protocol: str | None = string("0+", nullable="0+")
    leader: str | None = string("0+", nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata, "0+")
