"""Bringing producer state up to the log: by headers alone, except for the markers that end transactions."""

from __future__ import annotations

import logging

from protocol.errors import DecodeError
from protocol.records import BatchHeader
from storage.disk import DISK_FULL, Buffer
from storage.producer_state import CompletedTxn, EndTxnMarker, ProducerStateManager, read_end_txn_marker
from storage.results import AppendOrigin
from storage.segment import Segment
from storage.segments import Segments
from storage.txn_index import AbortedTxn

_log = logging.getLogger(__name__)


def marker_of(header: BatchHeader, batch: Buffer) -> EndTxnMarker | None:
    """The marker of a control batch with a producer id, None for any other batch."""
    if not header.is_control or header.producer_id < 0:
        return None
    return read_end_txn_marker(batch)


def aborted_txn(producers: ProducerStateManager, completed: CompletedTxn) -> AbortedTxn:
    """The index entry for an aborted transaction; to be asked for before `complete_txn`."""
    return AbortedTxn(
        completed.producer_id,
        completed.first_offset,
        completed.last_offset,
        producers.last_stable_offset(completed),
    )


def replay_batch(
    producers: ProducerStateManager, header: BatchHeader, marker: EndTxnMarker | None
) -> AbortedTxn | None:
    """Apply one stored batch. Returns the entry for the transaction index if it aborted a transaction."""
    aborted = None
    if header.producer_id >= 0:
        info = producers.prepare_update(header.producer_id, AppendOrigin.REPLICATION)
        completed = info.append(header, marker=marker)
        producers.update(info)
        if completed is not None:
            if completed.is_aborted:
                aborted = aborted_txn(producers, completed)
            producers.complete_txn(completed)
    producers.update_map_end_offset(header.next_offset)
    return aborted


def rebuild_producer_state(
    producers: ProducerStateManager,
    segments: Segments,
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
    *,
    clean: bool = False,
) -> None:
    """Make the state that of the log up to `end_offset`: the latest snapshot, then the batches behind it.

    After a clean stop there is a snapshot at the end of the log, so nothing is read. A clean log without any
    snapshot comes from a broker that knew no producers: there is nothing to find.
    """
    if clean and producers.latest_snapshot_offset is None:
        producers.update_map_end_offset(end_offset)
        producers.take_snapshot(sync=False)
        return
    producers.truncate_and_reload(log_start_offset, end_offset, now_ms)
    snapshot_at = set(segments.base_offsets[-2:])
    while producers.map_end_offset < end_offset:
        start = producers.map_end_offset
        segment = segments.floor(start)
        if segment is None:
            segment = segments.first
        if segment.base_offset in snapshot_at and segment.base_offset == start:
            _take_snapshot(producers)
        _replay_segment(producers, segment, max(start, log_start_offset), end_offset)
        following = segments.after(segment)
        if following is None:
            break
        producers.update_map_end_offset(max(producers.map_end_offset, following.base_offset))
    producers.update_map_end_offset(end_offset)
    _take_snapshot(producers)


def _take_snapshot(producers: ProducerStateManager) -> None:
    """It saves reading the next time, and a full disk costs no more than that."""
    try:
        producers.take_snapshot(sync=False)
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        _log.warning("No room for a snapshot of the producers: %s", error)


def _replay_segment(producers: ProducerStateManager, segment: Segment, start: int, end_offset: int) -> None:
    found = segment.translate(start)
    if found is None:
        return
    for position, header in segment.headers(found.position):
        if header.base_offset >= end_offset:
            return
        marker = None
        if header.is_control and header.producer_id >= 0:
            try:
                marker = read_end_txn_marker(segment.batch_bytes(position, header.size))
            except DecodeError as error:
                _log.warning("%s: the marker at offset %d is unreadable: %s", segment, header.base_offset, error)
        replay_batch(producers, header, marker)
