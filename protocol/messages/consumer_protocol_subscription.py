"""ConsumerProtocolSubscription: carried inside other messages or records."""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int32, raw, string


class TopicPartition(Struct):
    topic: str = string("1+")
    partitions: list[int] = array(int32, "1+")


class ConsumerProtocolSubscription(Message, versions="0-3", strict=True):
    topics: list[str] = array(string, "0+")
    user_data: bytes | None = raw("0+", nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
