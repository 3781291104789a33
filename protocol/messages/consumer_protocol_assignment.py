"""ConsumerProtocolAssignment: carried inside other messages or records."""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int32, raw, string


class TopicPartition(Struct):
    topic: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class ConsumerProtocolAssignment(Message, versions="0-3", strict=True):
    assigned_partitions: list[TopicPartition] = array(TopicPartition, "0+")
    user_data: bytes | None = raw("0+", nullable="0+", default=None)
