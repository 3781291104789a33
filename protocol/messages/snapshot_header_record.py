"""SnapshotHeaderRecord: carried inside other messages or records."""

from __future__ import annotations

from protocol.schema import Message, int16, int64


class SnapshotHeaderRecord(Message, versions="0", flexible="0+", strict=True):
    version: int = int16("0+")
    last_contained_log_timestamp: int = int64("0+")
