"""ShareGroupTargetAssignmentMember (record type 13): key and value as a coordinator stores them."""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int32, string, uuid
from protocol.uuids import Uuid


class ShareGroupTargetAssignmentMemberKey(Message, key=13, versions="0", strict=True):
    group_id: str = string("0")
    member_id: str = string("0")


class TopicPartition(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: list[int] = array(int32, "0+")


class ShareGroupTargetAssignmentMemberValue(Message, key=13, versions="0", flexible="0+", strict=True):
    topic_partitions: list[TopicPartition] = array(TopicPartition, "0+")
