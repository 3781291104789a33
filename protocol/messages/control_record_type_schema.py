"""ControlRecordTypeSchema: carried inside other messages or records."""

from __future__ import annotations

from protocol.schema import Message, int16


class ControlRecordTypeSchema(Message, versions="0", strict=True):
    type: int = int16("0+")
