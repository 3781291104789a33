"""ProducerIdsRecord: a record of the metadata log (type 15)."""

from __future__ import annotations

from protocol.schema import Message, int32, int64


class ProducerIdsRecord(Message, key=15, versions="0", flexible="0+", strict=True):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    next_producer_id: int = int64("0+")
