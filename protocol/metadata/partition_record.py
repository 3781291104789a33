"""PartitionRecord: a record of the metadata log (type 3)."""

from __future__ import annotations

from protocol.schema import Message, array, int8, int32, uuid
from protocol.uuids import Uuid


class PartitionRecord(Message, key=3, versions="0-2", flexible="0+", strict=True):
    partition_id: int = int32("0+", default=-1)
    topic_id: Uuid = uuid("0+")
    replicas: list[int] = array(int32, "0+")
    isr: list[int] = array(int32, "0+")
    removing_replicas: list[int] = array(int32, "0+")
    adding_replicas: list[int] = array(int32, "0+")
    leader: int = int32("0+", default=-1)
    leader_recovery_state: int = int8("0+", tag=0, tagged="0+")
    leader_epoch: int = int32("0+", default=-1)
    partition_epoch: int = int32("0+", default=-1)
    directories: list[Uuid] = array(uuid, "1+")
    eligible_leader_replicas: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=1, tagged="2+")
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=2, tagged="2+")
