"""ConsumerGroupMetadata (record type 3): key and value as a coordinator stores them."""

from __future__ import annotations

from protocol.schema import Message, int32, int64, string


class ConsumerGroupMetadataKey(Message, key=3, versions="0", strict=True):
    group_id: str = string("0")


class ConsumerGroupMetadataValue(Message, key=3, versions="0", flexible="0+", strict=True):
    epoch: int = int32("0+")
    metadata_hash: int = int64("0+", tag=0, tagged="0+")
