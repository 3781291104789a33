"""UnfenceBrokerRecord: a record of the metadata log (type 8)."""

from __future__ import annotations

from protocol.schema import Message, int32, int64


class UnfenceBrokerRecord(Message, key=8, versions="0", flexible="0+", strict=True):
    id: int = int32("0+")
    epoch: int = int64("0+")
