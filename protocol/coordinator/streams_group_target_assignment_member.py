"""StreamsGroupTargetAssignmentMember (record type 21): key and value as a coordinator stores them."""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int32, string


class StreamsGroupTargetAssignmentMemberKey(Message, key=21, versions="0", strict=True):
    group_id: str = string("0")
    member_id: str = string("0")


class TaskIds(Struct):
    subtopology_id: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class StreamsGroupTargetAssignmentMemberValue(Message, key=21, versions="0", flexible="0+", strict=True):
    active_tasks: list[TaskIds] = array(TaskIds, "0+")
    standby_tasks: list[TaskIds] = array(TaskIds, "0+")
    warmup_tasks: list[TaskIds] = array(TaskIds, "0+")
