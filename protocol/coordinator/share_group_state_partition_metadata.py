"""ShareGroupStatePartitionMetadata (record type 15): key and value as a coordinator stores them."""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int32, string, uuid
from protocol.uuids import Uuid


class ShareGroupStatePartitionMetadataKey(Message, key=15, versions="0", strict=True):
    group_id: str = string("0")


class TopicPartitionsInfo(Struct):
    topic_id: Uuid = uuid("0+")
    topic_name: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class TopicInfo(Struct):
    topic_id: Uuid = uuid("0+")
    topic_name: str = string("0+")


class ShareGroupStatePartitionMetadataValue(Message, key=15, versions="0", flexible="0+", strict=True):
    initializing_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo, "0+")
    initialized_topics: list[TopicPartitionsInfo] = array(TopicPartitionsInfo, "0+")
    deleting_topics: list[TopicInfo] = array(TopicInfo, "0+")
