"""BeginTransactionRecord: a record of the metadata log (type 23)."""

from __future__ import annotations

from protocol.schema import Message, string


class BeginTransactionRecord(Message, key=23, versions="0", flexible="0+", strict=True):
    name: str | None = string("0+", nullable="0+", default=None, tag=0, tagged="0+")
