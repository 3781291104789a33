"""ConsumerGroupCurrentMemberAssignment (record type 8): key and value as a coordinator stores them."""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int8, int32, string, uuid
from protocol.uuids import Uuid


class ConsumerGroupCurrentMemberAssignmentKey(Message, key=8, versions="0", strict=True):
    group_id: str = string("0")
    member_id: str = string("0")


class TopicPartitions(Struct):
    topic_id: Uuid = uuid("0+")
    partitions: list[int] = array(int32, "0+")
    assignment_epochs: list[int] | None = array(int32, "0+", nullable="0+", tag=0, tagged="0+")


class ConsumerGroupCurrentMemberAssignmentValue(Message, key=8, versions="0", flexible="0+", strict=True):
    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions, "0+")
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions, "0+")
