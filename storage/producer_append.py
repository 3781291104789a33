"""What a partition remembers of one producer, and the checks that a new batch of it has to pass.

Idempotence (KIP-98): a producer numbers its records per partition. The partition keeps the last five batches,
as many as a producer may have in flight, so that a retry is recognised and answered with the first offset it
got, and a gap is refused. Transactions ride on the same state: the first offset of the open one, and the
epoch of the coordinator that ended the last.

Checks work on a copy (`ProducerAppendInfo`) and are applied by the manager once the batch is in the log, so a
refused or failed append leaves no trace.
"""

from __future__ import annotations

import logging
from struct import Struct
from typing import NamedTuple

from protocol.errors import ApiError, DecodeError, ErrorCode
from protocol.records import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    ControlType,
    iter_records,
    parse_control_key,
)
from storage.results import AppendOrigin
from storage.snapshot_file import SnapshotEntry

NUM_BATCHES_TO_RETAIN = 5  # the most that a producer has in flight: max.in.flight.requests.per.connection <= 5
MAX_SEQUENCE = 0x7FFFFFFF
MAX_PRODUCER_EPOCH = 0x7FFF
NO_OFFSET = -1
UNKNOWN_TRANSACTION_VERSION = -1
"""Transaction version of a batch that is replayed: the log does not say it, and a replay refuses nothing."""

_MARKER_VALUE = Struct(">hi")
_log = logging.getLogger(__name__)


class BatchMetadata(NamedTuple):
    """A batch as duplicates are recognised by. Sequences wrap to 0 behind MAX_SEQUENCE."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class CompletedTxn(NamedTuple):
    """A transaction that a marker at `last_offset` ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class EndTxnMarker(NamedTuple):
    """The one record of a control batch that ends a transaction."""

    is_abort: bool
    coordinator_epoch: int


def read_end_txn_marker(batch: bytes | bytearray | memoryview) -> EndTxnMarker | None:
    """The marker in a control batch with a producer id; None if compaction has emptied the batch."""
    for record in iter_records(batch):
        kind = parse_control_key(record.key)
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            raise DecodeError(f"a control batch of a producer holds a record of type {kind.name}")
        if record.value is None or len(record.value) < _MARKER_VALUE.size:
            raise DecodeError("the value of an end transaction marker has fewer than 6 bytes")
        version, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
        if version < 0:
            raise DecodeError(f"an end transaction marker has version {version}")
        return EndTxnMarker(kind is ControlType.ABORT, coordinator_epoch)
    return None


class VerificationState:
    """A transaction whose first batch here waits for the coordinator to confirm it knows the partition
    (KIP-890).

    The object itself is the guard: it is dropped when the transaction ends, so an answer that comes too late
    finds another object, or none, and its batch is refused.
    """

    __slots__ = ("epoch", "lowest_sequence", "supports_epoch_bump", "timestamp")

    def __init__(self, timestamp: int, sequence: int, epoch: int, supports_epoch_bump: bool) -> None:
        self.timestamp = timestamp
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.supports_epoch_bump = supports_epoch_bump

    def update(self, sequence: int, epoch: int) -> None:
        """Batches may be verified out of order; none above the lowest one may be the first in the log."""
        if epoch > self.epoch or (epoch == self.epoch and sequence < self.lowest_sequence):
            self.epoch = epoch
            self.lowest_sequence = sequence


class ProducerStateEntry:
    """One producer: epoch -1 and no batches while nothing is known of it."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "epoch",
        "last_timestamp",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp: int = NO_TIMESTAMP,
        current_txn_first_offset: int | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.current_txn_first_offset = current_txn_first_offset
        self.batches: list[BatchMetadata] = []  # oldest first, at most five, all of the current epoch

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    @property
    def first_data_offset(self) -> int:
        return self.batches[0].first_offset if self.batches else NO_OFFSET

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The stored batch that `header` repeats: same epoch, same first and last sequence."""
        if header.producer_epoch == self.epoch:
            last_sequence = header.last_sequence
            for batch in self.batches:
                if batch.last_sequence == last_sequence and batch.first_sequence == header.base_sequence:
                    return batch
        return None

    def set_epoch(self, epoch: int) -> None:
        """A new epoch numbers its batches from 0 again; the old ones say nothing about duplicates now."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch

    def add_batch(self, batch: BatchMetadata) -> None:
        batches = self.batches
        if len(batches) == NUM_BATCHES_TO_RETAIN:
            del batches[0]
        batches.append(batch)

    def update(self, newer: ProducerStateEntry) -> None:
        """Take over what a ProducerAppendInfo collected."""
        self.set_epoch(newer.epoch)
        for batch in newer.batches:
            self.add_batch(batch)
        self.coordinator_epoch = newer.coordinator_epoch
        self.current_txn_first_offset = newer.current_txn_first_offset
        self.last_timestamp = newer.last_timestamp

    def to_snapshot(self) -> SnapshotEntry:
        last = self.batches[-1] if self.batches else BatchMetadata(NO_SEQUENCE, NO_OFFSET, 0, NO_TIMESTAMP)
        txn = self.current_txn_first_offset
        return SnapshotEntry(
            self.producer_id,
            self.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            self.last_timestamp,
            self.coordinator_epoch,
            NO_OFFSET if txn is None else txn,
        )

    @classmethod
    def from_snapshot(cls, saved: SnapshotEntry) -> ProducerStateEntry:
        txn = saved.current_txn_first_offset
        entry = cls(
            saved.producer_id,
            saved.epoch,
            saved.coordinator_epoch,
            saved.timestamp,
            txn if txn >= 0 else None,
        )
        if saved.last_offset >= 0:
            entry.batches.append(
                BatchMetadata(saved.last_sequence, saved.last_offset, saved.offset_delta, saved.timestamp)
            )
        return entry


class ProducerAppendInfo:
    """The batches of one producer in one append, checked one after the other, not yet applied.

    Which checks apply depends on the origin: a follower and a recovery repeat what a leader accepted, so they
    only complain in the log; sequences are checked for clients alone.
    """

    __slots__ = (
        "_current",
        "_origin",
        "_partition",
        "_verification",
        "producer_id",
        "started_txns",
        "updated",
    )

    def __init__(
        self,
        partition: str,
        current: ProducerStateEntry,
        origin: AppendOrigin,
        verification: VerificationState | None = None,
    ) -> None:
        """`partition` is "topic-N", for messages. `current` is not changed."""
        self.producer_id = current.producer_id
        self._partition = partition
        self._current = current
        self._origin = origin
        self._verification = verification
        self.updated = ProducerStateEntry(
            current.producer_id,
            current.epoch,
            current.coordinator_epoch,
            current.last_timestamp,
            current.current_txn_first_offset,
        )
        self.started_txns: list[int] = []  # first offsets

    def append(
        self,
        header: BatchHeader,
        *,
        base_offset: int | None = None,
        marker: EndTxnMarker | None = None,
        transaction_version: int = UNKNOWN_TRANSACTION_VERSION,
    ) -> CompletedTxn | None:
        """Check one batch and note its effect; ApiError if it has to be refused.

        `base_offset` is the offset the leader gives the batch, if its header does not say it yet. A control
        batch needs its `marker` (None: an empty control batch, which has no effect).
        """
        offset = header.base_offset if base_offset is None else base_offset
        if header.is_control:
            if marker is None:
                return None
            return self.append_end_txn_marker(
                marker, header.producer_epoch, offset, header.max_timestamp, transaction_version
            )
        epoch, sequence = header.producer_epoch, header.base_sequence
        self._check_producer_epoch(epoch, offset, UNKNOWN_TRANSACTION_VERSION)
        if self._origin is AppendOrigin.CLIENT:
            self._check_sequence(epoch, sequence, offset)
        updated = self.updated
        delta = header.last_offset_delta
        updated.set_epoch(epoch)
        updated.add_batch(BatchMetadata(header.last_sequence, offset + delta, delta, header.max_timestamp))
        updated.last_timestamp = header.max_timestamp
        if updated.current_txn_first_offset is not None:
            if not header.is_transactional:
                raise ApiError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"Producer {self.producer_id} sent a non-transactional batch to {self._partition} in its "
                    f"transaction that began at offset {updated.current_txn_first_offset}",
                )
        elif header.is_transactional:
            updated.current_txn_first_offset = offset
            self.started_txns.append(offset)
        return None

    def append_end_txn_marker(
        self, marker: EndTxnMarker, epoch: int, offset: int, timestamp: int, transaction_version: int
    ) -> CompletedTxn | None:
        """End the open transaction, if there is one; a marker without one is legal (a retry)."""
        if transaction_version == UNKNOWN_TRANSACTION_VERSION:
            if self._origin is not AppendOrigin.REPLICATION:
                raise ValueError(f"a marker from {self._origin} needs its transaction version")
            transaction_version = 0
        self._check_producer_epoch(epoch, offset, transaction_version)
        self._check_coordinator_epoch(marker, offset)
        updated = self.updated
        first_offset = updated.current_txn_first_offset
        updated.set_epoch(epoch)
        updated.coordinator_epoch = marker.coordinator_epoch
        updated.last_timestamp = timestamp
        updated.current_txn_first_offset = None
        if first_offset is None:
            return None
        return CompletedTxn(self.producer_id, first_offset, offset, marker.is_abort)

    def _check_producer_epoch(self, epoch: int, offset: int, transaction_version: int) -> None:
        """Refuse a producer that a newer instance has fenced.

        From transaction version 2 on (KIP-890) every transaction has an epoch of its own and its marker the
        next one, so a marker with the *current* epoch is late, unless it repeats the marker that ended the
        transaction already or the epochs are used up.
        """
        current = self.updated.epoch
        own_epoch_per_txn = transaction_version >= 2
        if epoch > current or (epoch == current and not own_epoch_per_txn):
            return
        if epoch == current and (self.updated.current_txn_first_offset is None or epoch == MAX_PRODUCER_EPOCH):
            return
        message = (
            f"Producer {self.producer_id} wrote to {self._partition} at offset {offset} with epoch {epoch}, "
            f"but its epoch is {current} (transaction version {transaction_version})"
        )
        if self._origin is not AppendOrigin.REPLICATION:
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, message)
        _log.warning("%s", message)

    def _check_coordinator_epoch(self, marker: EndTxnMarker, offset: int) -> None:
        """Refuse a marker of a transaction coordinator that another one has replaced."""
        current = self.updated.coordinator_epoch
        if current <= marker.coordinator_epoch:
            return
        message = (
            f"A marker for producer {self.producer_id} in {self._partition} at offset {offset} is of "
            f"coordinator epoch {marker.coordinator_epoch}, but epoch {current} is known"
        )
        if self._origin is not AppendOrigin.REPLICATION:
            raise ApiError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, message)
        _log.info("%s", message)

    def _check_sequence(self, epoch: int, sequence: int, offset: int) -> None:
        """Refuse a gap. A producer that is not known here may start anywhere: its state may have expired, or
        been deleted with the records; only under KIP-890 part 2, where that cannot be, it must start with 0.
        """
        updated, current, verification = self.updated, self._current, self._verification
        if verification is not None:
            if verification.supports_epoch_bump and sequence != 0 and not current.batches:
                raise self._out_of_order(offset, sequence, "is not known here and must start with 0")
            if sequence > verification.lowest_sequence:
                lowest = verification.lowest_sequence
                raise self._out_of_order(offset, sequence, f"has sequence {lowest} still to be verified")
        if epoch != updated.epoch:
            if sequence != 0 and updated.epoch != NO_PRODUCER_EPOCH:
                raise self._out_of_order(offset, sequence, f"must start epoch {epoch} with 0")
            return
        if current.epoch == NO_PRODUCER_EPOCH:
            return
        if updated.batches:
            last = updated.batches[-1].last_sequence
        elif epoch == current.epoch:
            last = current.last_sequence
        else:
            last = NO_SEQUENCE
        if sequence != last + 1 and not (sequence == 0 and last == MAX_SEQUENCE):
            raise self._out_of_order(offset, sequence, f"last wrote sequence {last}")

    def _out_of_order(self, offset: int, sequence: int, why: str) -> ApiError:
        return ApiError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Sequence {sequence} is out of order in {self._partition} at offset {offset}: "
            f"producer {self.producer_id} {why}",
        )
