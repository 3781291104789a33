"""Transactions of the metadata log (KIP-868): several batches that become visible together or not at all."""

from __future__ import annotations

from collections.abc import Iterable

from controller.delta import MetadataError
from protocol.schema import Message

BEGIN_TRANSACTION = 23  # record types
END_TRANSACTION = 24
ABORT_TRANSACTION = 25


class TransactionBuffer:
    """Holds back what stands between BeginTransaction and EndTransaction: an image never shows half of one.

    A transaction may span batches (Kafka writes large bootstraps so); what it holds is dropped by an
    AbortTransaction, which a new leader writes for a transaction its predecessor left open.
    """

    def __init__(self) -> None:
        self._held: list[Message] | None = None

    @property
    def in_transaction(self) -> bool:
        return self._held is not None

    def feed(self, records: Iterable[Message]) -> list[Message]:
        """The records that may be applied now, in order."""
        ready: list[Message] = []
        for record in records:
            key = record.API_KEY
            if key == BEGIN_TRANSACTION:
                if self._held is not None:
                    raise MetadataError("the metadata log begins a transaction inside a transaction")
                self._held = []
            elif key in (END_TRANSACTION, ABORT_TRANSACTION):
                if self._held is None:
                    raise MetadataError("the metadata log ends a transaction that it did not begin")
                if key == END_TRANSACTION:
                    ready += self._held
                self._held = None
            elif self._held is not None:
                self._held.append(record)
            else:
                ready.append(record)
        return ready
