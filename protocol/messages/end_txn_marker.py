"""EndTxnMarker: carried inside other messages or records."""

from __future__ import annotations

from protocol.schema import Message, int32


class EndTxnMarker(Message, versions="0", strict=True):
    coordinator_epoch: int = int32("0+")
