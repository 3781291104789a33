"""UnregisterBrokerRecord: a record of the metadata log (type 1)."""

from __future__ import annotations

from protocol.schema import Message, int32, int64


class UnregisterBrokerRecord(Message, key=1, versions="0", flexible="0+", strict=True):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")
