"""PartitionChangeRecord: a record of the metadata log (type 5)."""

from __future__ import annotations

from protocol.schema import Message, array, int8, int32, uuid
from protocol.uuids import Uuid


class PartitionChangeRecord(Message, key=5, versions="0-2", flexible="0+", strict=True):
    partition_id: int = int32("0+", default=-1)
    topic_id: Uuid = uuid("0+")
    isr: list[int] | None = array(int32, "0+", nullable="0+", default=None, tag=0, tagged="0+")
    leader: int = int32("0+", default=-2, tag=1, tagged="0+")
    replicas: list[int] | None = array(int32, "0+", nullable="0+", default=None, tag=2, tagged="0+")
    removing_replicas: list[int] | None = array(int32, "0+", nullable="0+", default=None, tag=3, tagged="0+")
    adding_replicas: list[int] | None = array(int32, "0+", nullable="0+", default=None, tag=4, tagged="0+")
    leader_recovery_state: int = int8("0+", default=-1, tag=5, tagged="0+")
    directories: list[Uuid] | None = array(uuid, "1+", nullable="1+", default=None, tag=8, tagged="1+")
    eligible_leader_replicas: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=6, tagged="2+")
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=7, tagged="2+")
