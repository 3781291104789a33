"""ShareGroupMemberMetadata (record type 10): key and value as a coordinator stores them."""

from __future__ import annotations

from protocol.schema import Message, array, string


class ShareGroupMemberMetadataKey(Message, key=10, versions="0", strict=True):
    group_id: str = string("0")
    member_id: str = string("0")


class ShareGroupMemberMetadataValue(Message, key=10, versions="0", flexible="0+", strict=True):
    rack_id: str | None = string("0+", nullable="0+")
    client_id: str = string("0+")
    client_host: str = string("0+")
    subscribed_topic_names: list[str] = array(string, "0+")
