"""NoOpRecord: a record of the metadata log (type 20)."""

from __future__ import annotations

from protocol.schema import Message


class NoOpRecord(Message, key=20, versions="0", flexible="0+", strict=True):
    pass
