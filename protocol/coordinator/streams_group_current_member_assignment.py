"""StreamsGroupCurrentMemberAssignment (record type 22): key and value as a coordinator stores them."""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int8, int32, string


class StreamsGroupCurrentMemberAssignmentKey(Message, key=22, versions="0", strict=True):
    group_id: str = string("0")
    member_id: str = string("0")


class TaskIds(Struct):
    subtopology_id: str = string("0+")
    partitions: list[int] = array(int32, "0+")
    assignment_epochs: list[int] | None = array(int32, "0+", nullable="0+", tag=0, tagged="0+")


class StreamsGroupCurrentMemberAssignmentValue(Message, key=22, versions="0", flexible="0+", strict=True):
    member_epoch: int = int32("0+")
    previous_member_epoch: int = int32("0+")
    state: int = int8("0+")
    active_tasks: list[TaskIds] = array(TaskIds, "0+")
    standby_tasks: list[TaskIds] = array(TaskIds, "0+")
    warmup_tasks: list[TaskIds] = array(TaskIds, "0+")
    active_tasks_pending_revocation: list[TaskIds] = array(TaskIds, "0+")
    standby_tasks_pending_revocation: list[TaskIds] = array(TaskIds, "0+")
    warmup_tasks_pending_revocation: list[TaskIds] = array(TaskIds, "0+")
