"""ShareGroupCurrentMemberAssignment (record type 14): key and value as a coordinator stores them."""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int8, int32, string, uuid
from protocol.uuids import Uuid


class ShareGroupCurrentMemberAssignmentKey(Message, key=14, versions="0", strict=True):
    group_id: str = string("0")
    member_id: str = string("0")


class TopicPartitions(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: list[int] = array(int32, "0+")


class ShareGroupCurrentMemberAssignmentValue(Message, key=14, versions="0", flexible="0+", strict=True):
    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions, "0+")
