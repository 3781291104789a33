"""ConsumerGroupPartitionMetadata (record type 4): key and value as a coordinator stores them."""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int32, string, uuid
from protocol.uuids import Uuid


class ConsumerGroupPartitionMetadataKey(Message, key=4, versions="0", strict=True):
    group_id: str = string("0")


class PartitionMetadata(Struct):
    partition: int = int32("0+")
    racks: list[str] = array(string, "0+")


class TopicMetadata(Struct):
    topic_id: Uuid = uuid("0+")
    topic_name: str = string("0+")
    num_partitions: int = int32("0+")
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata, "0+")


class ConsumerGroupPartitionMetadataValue(Message, key=4, versions="0", flexible="0+", strict=True):
    topics: list[TopicMetadata] = array(TopicMetadata, "0+")
