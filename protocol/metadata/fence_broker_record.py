"""FenceBrokerRecord: a record of the metadata log (type 7)."""

from __future__ import annotations

from protocol.schema import Message, int32, int64


class FenceBrokerRecord(Message, key=7, versions="0", flexible="0+", strict=True):
    id: int = int32("0+")
    epoch: int = int64("0+")
