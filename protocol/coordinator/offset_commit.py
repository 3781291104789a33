"""OffsetCommit (record type 1): key and value as a coordinator stores them."""

from __future__ import annotations

from protocol.schema import Message, int32, int64, string, uuid
from protocol.uuids import Uuid


class OffsetCommitKey(Message, key=1, versions="0", strict=True):
    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


class OffsetCommitValue(Message, key=1, versions="0-4", flexible="4+", strict=True):
    offset: int = int64("0+")
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string("0+")
    commit_timestamp: int = int64("0+")
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: Uuid = uuid("4+", tag=0, tagged="4+", ignorable=True)
