"""The producers of one partition: who wrote last, which transactions are open, and the snapshots of both.

How an append uses it: `find_duplicate`, then `prepare_update` and `ProducerAppendInfo.append` for each
producer in the request (they check, and change nothing here), then the write to the log, then `update`,
`complete_txn` for the transactions that ended, and `update_map_end_offset`. The state always reflects the log
up to `map_end_offset`.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from protocol.records import NO_PRODUCER_ID, NO_TIMESTAMP, BatchHeader
from storage.disk import DISK, Disk
from storage.producer_append import (
    BatchMetadata,
    CompletedTxn,
    EndTxnMarker,
    ProducerAppendInfo,
    ProducerStateEntry,
    VerificationState,
    read_end_txn_marker,
)
from storage.results import AppendOrigin
from storage.snapshot_file import (
    DELETED_SUFFIX,
    CorruptSnapshot,
    list_snapshots,
    read_snapshot,
    snapshot_path,
    write_snapshot,
)

__all__ = [
    "ActiveProducer",
    "BatchMetadata",
    "CompletedTxn",
    "EndTxnMarker",
    "ProducerAppendInfo",
    "ProducerStateEntry",
    "ProducerStateManager",
    "VerificationState",
    "read_end_txn_marker",
]

LATE_TRANSACTION_BUFFER_MS = 5 * 60 * 1000  # Kafka's: a transaction is late this long after its timeout
DEFAULT_PRODUCER_ID_EXPIRATION_MS = 86_400_000  # producer.id.expiration.ms
DEFAULT_MAX_TRANSACTION_TIMEOUT_MS = 900_000  # transaction.max.timeout.ms

_log = logging.getLogger(__name__)


class ActiveProducer(NamedTuple):
    """One line of DescribeProducers."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


class ProducerStateManager:
    """See the module's docstring. One owner, the event loop; times are passed in."""

    __slots__ = (
        "_directory",
        "_last_map_offset",
        "_last_snap_offset",
        "_ongoing",
        "_ops",
        "_partition",
        "_producers",
        "_snapshots",
        "_unreplicated",
        "_verifications",
        "max_transaction_timeout_ms",
        "oldest_txn_last_timestamp",
        "producer_id_expiration_ms",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        directory: str,
        *,
        max_transaction_timeout_ms: int = DEFAULT_MAX_TRANSACTION_TIMEOUT_MS,
        producer_id_expiration_ms: int = DEFAULT_PRODUCER_ID_EXPIRATION_MS,
        ops: Disk = DISK,
    ) -> None:
        """Lists the snapshots of the partition's directory; `truncate_and_reload` loads one."""
        self._partition = f"{topic}-{partition}"
        self._directory = directory
        self._ops = ops
        self.max_transaction_timeout_ms = max_transaction_timeout_ms
        self.producer_id_expiration_ms = producer_id_expiration_ms
        self._producers: dict[int, ProducerStateEntry] = {}
        self._verifications: dict[int, VerificationState] = {}
        # Open transactions, first offset -> producer id. Ascending: they begin in the order of the log.
        self._ongoing: OrderedDict[int, int] = OrderedDict()
        # Ended, but with a marker at or above the high watermark: first offset -> marker's offset.
        self._unreplicated: dict[int, int] = {}
        self.oldest_txn_last_timestamp = NO_TIMESTAMP
        self._last_map_offset = 0
        self._last_snap_offset = 0
        self._snapshots = list_snapshots(directory)  # ascending

    # --- producers

    @property
    def producers(self) -> Mapping[int, ProducerStateEntry]:
        """All known producers by id, to read."""
        return MappingProxyType(self._producers)

    @property
    def is_empty(self) -> bool:
        return not self._producers and not self._unreplicated

    def last_entry(self, producer_id: int) -> ProducerStateEntry | None:
        return self._producers.get(producer_id)

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The batch that `header` repeats, among the producer's last five; the answer is then its offsets."""
        entry = self._producers.get(header.producer_id)
        return entry.find_duplicate(header) if entry is not None else None

    def active_producers(self) -> list[ActiveProducer]:
        """What DescribeProducers answers."""
        return [
            ActiveProducer(
                entry.producer_id,
                entry.epoch,
                entry.last_sequence,
                entry.last_timestamp,
                entry.coordinator_epoch,
                -1 if entry.current_txn_first_offset is None else entry.current_txn_first_offset,
            )
            for entry in self._producers.values()
        ]

    def prepare_update(self, producer_id: int, origin: AppendOrigin) -> ProducerAppendInfo:
        """Begin to check the batches of one producer; nothing changes here until `update`."""
        entry = self._producers.get(producer_id) or ProducerStateEntry(producer_id)
        return ProducerAppendInfo(self._partition, entry, origin, self._verifications.get(producer_id))

    def update(self, info: ProducerAppendInfo) -> None:
        """Apply what was checked; its batches are in the log now."""
        producer_id = info.producer_id
        if producer_id == NO_PRODUCER_ID:
            raise ValueError(f"an update without a producer id in {self._partition}")
        entry = self._producers.get(producer_id)
        if entry is None:
            self._producers[producer_id] = info.updated
        else:
            entry.update(info.updated)
        for first_offset in info.started_txns:
            self._ongoing[first_offset] = producer_id
        if self._ongoing:
            self._update_oldest_txn_timestamp()

    def load_entry(self, entry: ProducerStateEntry) -> None:
        """Add a producer as it was saved."""
        self._producers[entry.producer_id] = entry
        if entry.current_txn_first_offset is not None:
            self._ongoing[entry.current_txn_first_offset] = entry.producer_id

    def expire(self, now_ms: int) -> int:
        """Forget producers that were silent too long, unless a transaction of theirs is open. How many."""
        expired = [key for key, entry in self._producers.items() if self._is_expired(now_ms, entry)]
        for key in expired:
            del self._producers[key]
        limit = now_ms - self.producer_id_expiration_ms
        for key in [key for key, state in self._verifications.items() if state.timestamp <= limit]:
            del self._verifications[key]
        return len(expired)

    def _is_expired(self, now_ms: int, entry: ProducerStateEntry) -> bool:
        silent_ms = now_ms - entry.last_timestamp
        return entry.current_txn_first_offset is None and silent_ms >= self.producer_id_expiration_ms

    # --- transactions

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the oldest open transaction begins."""
        return next(iter(self._ongoing), None)

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction begins that is open, or whose marker is not below the high watermark.

        read_committed readers stop here: it is the last stable offset, or the high watermark is if it is
        lower.
        """
        ongoing = next(iter(self._ongoing), None)
        if not self._unreplicated:
            return ongoing
        unreplicated = min(self._unreplicated)
        return unreplicated if ongoing is None else min(unreplicated, ongoing)

    def last_stable_offset(self, completed: CompletedTxn) -> int:
        """What the last stable offset is once this transaction is over; goes into its AbortedTxn."""
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != completed.producer_id:
                return first_offset
        return completed.last_offset + 1

    def complete_txn(self, completed: CompletedTxn) -> None:
        """The marker is in the log: the transaction is decided, though unstable until the marker is
        replicated."""
        if self._ongoing.pop(completed.first_offset, None) is None:
            raise ValueError(f"{completed} of {self._partition} was not open")
        self._unreplicated[completed.first_offset] = completed.last_offset
        self._update_oldest_txn_timestamp()

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Transactions whose marker is below the high watermark are stable."""
        if self._unreplicated:
            self._remove_unreplicated(high_watermark)

    def _remove_unreplicated(self, offset: int) -> None:
        self._unreplicated = {first: last for first, last in self._unreplicated.items() if last >= offset}

    def _update_oldest_txn_timestamp(self) -> None:
        entry = self._producers.get(next(iter(self._ongoing.values()), NO_PRODUCER_ID))
        self.oldest_txn_last_timestamp = NO_TIMESTAMP if entry is None else entry.last_timestamp

    def has_late_transaction(self, now_ms: int) -> bool:
        """Whether the oldest open transaction should have been ended by its timeout long ago (a metric)."""
        last = self.oldest_txn_last_timestamp
        return last > 0 and now_ms - last > self.max_transaction_timeout_ms + LATE_TRANSACTION_BUFFER_MS

    def maybe_create_verification(
        self, producer_id: int, sequence: int, epoch: int, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationState:
        """The guard for a transaction that the coordinator has still to confirm (KIP-890)."""
        state = self._verifications.get(producer_id)
        if state is None:
            state = VerificationState(now_ms, sequence, epoch, supports_epoch_bump)
            self._verifications[producer_id] = state
        else:
            state.update(sequence, epoch)
        return state

    def verification(self, producer_id: int) -> VerificationState | None:
        return self._verifications.get(producer_id)

    def clear_verification(self, producer_id: int) -> None:
        self._verifications.pop(producer_id, None)

    # --- offsets

    @property
    def map_end_offset(self) -> int:
        """The state is that of the log up to here (exclusive)."""
        return self._last_map_offset

    def update_map_end_offset(self, offset: int) -> None:
        """The state now covers the log up to `offset`: after every append, with or without a producer id."""
        self._last_map_offset = offset

    def on_log_start_offset_incremented(self, log_start_offset: int) -> None:
        """Records were deleted from the start. Producers are kept: their next sequence is still to be
        checked."""
        self._remove_unreplicated(log_start_offset)
        self._last_map_offset = max(self._last_map_offset, log_start_offset)
        self._last_snap_offset = (
            log_start_offset if self.latest_snapshot_offset is None else self.latest_snapshot_offset
        )

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """The log now spans [start, end): drop the snapshots outside (start, end] and load the latest left.

        The caller then replays the log from `map_end_offset`. Nothing is reloaded if the state is at the end
        already.
        """
        for offset in [at for at in self._snapshots if at > log_end_offset or at <= log_start_offset]:
            self._delete_snapshot(offset)
        if log_end_offset != self._last_map_offset:
            self._clear()
            self._load_from_snapshot(log_start_offset, now_ms)
        else:
            self.on_log_start_offset_incremented(log_start_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """The log was emptied and goes on at `offset`: no producer is known, no snapshot is left."""
        self._clear()
        for at in list(self._snapshots):
            self._delete_snapshot(at)
        self._last_snap_offset = 0
        self._last_map_offset = offset

    def _clear(self) -> None:
        self._producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self._update_oldest_txn_timestamp()

    # --- snapshots

    @property
    def snapshots(self) -> Mapping[int, str]:
        """Paths by offset, lowest first."""
        return MappingProxyType(self._snapshots)

    @property
    def latest_snapshot_offset(self) -> int | None:
        return next(reversed(self._snapshots), None)

    @property
    def oldest_snapshot_offset(self) -> int | None:
        return next(iter(self._snapshots), None)

    def _load_from_snapshot(self, log_start_offset: int, now_ms: int) -> None:
        """Load the latest snapshot that is sound, removing those that are not; without one, know nobody."""
        while self._snapshots:
            offset, path = next(reversed(self._snapshots.items()))
            try:
                saved = read_snapshot(path)
            except (CorruptSnapshot, FileNotFoundError) as error:
                _log.warning("%s: a producer snapshot is passed over: %s", self._partition, error)
                self._delete_snapshot(offset)
                continue
            # In the order of their transactions, for `_ongoing`.
            for values in sorted(saved, key=lambda values: values.current_txn_first_offset):
                entry = ProducerStateEntry.from_snapshot(values)
                if not self._is_expired(now_ms, entry):
                    self.load_entry(entry)
            self._last_snap_offset = self._last_map_offset = offset
            self._update_oldest_txn_timestamp()
            return
        self._last_snap_offset = self._last_map_offset = log_start_offset

    def take_snapshot(self, *, sync: bool = True) -> str | None:
        """Save the state as of `map_end_offset`; None if the last snapshot is as recent as that.

        With `sync` False the file is not durable yet: pass its path to `sync_snapshot` in a thread. A file
        lost in a crash costs only the time to read the log from the snapshot before.
        """
        offset = self._last_map_offset
        if offset <= self._last_snap_offset:
            return None
        path = snapshot_path(self._directory, offset)
        # By producer id: the same state always gives the same bytes.
        entries = [self._producers[key].to_snapshot() for key in sorted(self._producers)]
        write_snapshot(path, entries, sync=sync, ops=self._ops)
        self._snapshots[offset] = path
        self._snapshots = dict(sorted(self._snapshots.items()))
        self._last_snap_offset = offset
        return path

    def delete_snapshots_before(self, offset: int) -> None:
        for at in [at for at in self._snapshots if at < offset]:
            self._delete_snapshot(at)

    def remove_stray_snapshots(self, segment_base_offsets: Collection[int]) -> None:
        """At start: keep the snapshots that belong to a segment, and the last of all if it is above them.

        That last one was taken at shutdown, at the end of the log; the others are left over from segments
        that are gone.
        """
        bases = set(segment_base_offsets)
        self._snapshots = list_snapshots(self._directory)
        strays = [at for at in self._snapshots if at not in bases]
        if strays and (not bases or strays[-1] >= max(bases)):
            strays.pop()
        for at in strays:
            self._delete_snapshot(at)

    def mark_snapshot_for_deletion(self, offset: int) -> str | None:
        """Rename the snapshot of a deleted segment; the new path is removed when the segment's files are."""
        path = self._snapshots.pop(offset, None)
        if path is None:
            return None
        try:
            self._ops.rename(path, path + DELETED_SUFFIX)
        except FileNotFoundError:
            return None
        return path + DELETED_SUFFIX

    def _delete_snapshot(self, offset: int) -> None:
        path = self._snapshots.pop(offset)
        try:
            self._ops.unlink(path)
        except FileNotFoundError:
            _log.info("%s: %s was gone already", self._partition, path)

    def reload_snapshots(self) -> None:
        """List the directory again, after files came or went behind our back."""
        self._snapshots = list_snapshots(self._directory)

    def update_parent_dir(self, directory: str) -> None:
        """The partition's directory was renamed."""
        self._directory = directory
        self._snapshots = {at: os.path.join(directory, os.path.basename(path)) for at, path in self._snapshots.items()}
