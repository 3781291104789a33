"""EndTransactionRecord: a record of the metadata log (type 24)."""

from __future__ import annotations

from protocol.schema import Message


class EndTransactionRecord(Message, key=24, versions="0", flexible="0+", strict=True):
    pass
