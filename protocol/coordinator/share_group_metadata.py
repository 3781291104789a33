"""ShareGroupMetadata (record type 11): key and value as a coordinator stores them."""

from __future__ import annotations

from protocol.schema import Message, int32, int64, string


class ShareGroupMetadataKey(Message, key=11, versions="0", strict=True):
    group_id: str = string("0")


class ShareGroupMetadataValue(Message, key=11, versions="0", flexible="0+", strict=True):
    epoch: int = int32("0+")
    metadata_hash: int = int64("0+")
