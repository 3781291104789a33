"""LegacyOffsetCommit (record type 0): key and value as a coordinator stores them."""

from __future__ import annotations

from protocol.schema import Message, int32, int64, string


class LegacyOffsetCommitKey(Message, key=0, versions="0", strict=True):
    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


class LegacyOffsetCommitValue(Message, key=0, versions="0", strict=True):
    offset: int = int64("0")
    metadata: str = string("0")
    commit_timestamp: int = int64("0")
