"""StreamsGroupTargetAssignmentMetadata (record type 20): key and value as a coordinator stores them."""

from __future__ import annotations

from protocol.schema import Message, int32, int64, string


class StreamsGroupTargetAssignmentMetadataKey(Message, key=20, versions="0", strict=True):
    group_id: str = string("0")


class StreamsGroupTargetAssignmentMetadataValue(Message, key=20, versions="0", flexible="0+", strict=True):
    assignment_epoch: int = int32("0+")
    assignment_timestamp: int = int64("0+", tag=0, tagged="0+", ignorable=True)
