"""AbortTransactionRecord: a record of the metadata log (type 25)."""

from __future__ import annotations

from protocol.schema import Message, string


class AbortTransactionRecord(Message, key=25, versions="0", flexible="0+", strict=True):
    reason: str | None = string("0+", nullable="0+", default=None, tag=0, tagged="0+")
