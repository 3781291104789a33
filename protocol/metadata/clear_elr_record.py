"""ClearElrRecord: a record of the metadata log (type 28)."""

from __future__ import annotations

from protocol.schema import Message, string


class ClearElrRecord(Message, key=28, versions="0", flexible="0+", strict=True):
    topic_name: str = string("0+")
