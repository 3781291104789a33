"""SnapshotFooterRecord: carried inside other messages or records."""

from __future__ import annotations

from protocol.schema import Message, int16


class SnapshotFooterRecord(Message, versions="0", flexible="0+", strict=True):
    version: int = int16("0+")
