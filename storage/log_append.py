"""The two ways into a log: a batch that the leader numbers, and batches that have their offsets already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.errors import ApiError, ErrorCode
from protocol.records import LOG_OVERHEAD, BatchHeader, set_base_offset, set_leader_epoch
from storage.append import check_given_batches, needs_rewrite, rewrite
from storage.producer_replay import marker_of
from storage.producer_state import CompletedTxn, ProducerAppendInfo
from storage.results import AppendOrigin, AppendResult

if TYPE_CHECKING:
    from storage.log import Log

_new_tuple = tuple.__new__


def append_one(
    log: Log,
    data: memoryview,
    header: BatchHeader,
    leader_epoch: int,
    now_ms: int,
    origin: AppendOrigin,
    transaction_version: int,
) -> AppendResult:
    """Give a checked batch the next offset and store it.

    Producer state is checked before the write and changed after it, so a failed write leaves no trace; a retry is
    answered with the offsets it got the first time.
    """
    rules = log.rules
    if needs_rewrite(header, rules, trusted=origin is AppendOrigin.COORDINATOR):
        data, header = rewrite(data[: header.size], header, rules, now_ms)
    size = header.batch_length + LOG_OVERHEAD
    if size != len(data):
        data = data[:size]
    if size > log.config.segment_bytes:
        raise ApiError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"A batch of {size} bytes exceeds segment.bytes, which is {log.config.segment_bytes}",
        )
    base_offset = log.log_end_offset
    producers = log.producers
    info: ProducerAppendInfo | None = None
    completed: CompletedTxn | None = None
    if header.producer_id >= 0:
        if origin is AppendOrigin.CLIENT:
            stored = producers.find_duplicate(header)
            if stored is not None:
                return AppendResult(
                    stored.first_offset,
                    stored.last_offset,
                    stored.timestamp if rules.log_append_time else -1,
                    log.log_start_offset,
                    stored.timestamp,
                    True,
                )
        info = producers.prepare_update(header.producer_id, origin)
        completed = info.append(
            header,
            base_offset=base_offset,
            marker=marker_of(header, data),
            transaction_version=transaction_version,
        )
    set_base_offset(data, base_offset)
    set_leader_epoch(data, leader_epoch)
    header = _new_tuple(BatchHeader, (base_offset, header[1], leader_epoch, *header[3:]))
    log.write_batches(data, (header,), now_ms, header.max_timestamp, completed)
    if info is not None:
        producers.update(info)
        if completed is not None:
            producers.complete_txn(completed)
    end_offset = base_offset + header.last_offset_delta + 1
    log.log_end_offset = end_offset
    producers.update_map_end_offset(end_offset)
    return AppendResult(
        base_offset,
        end_offset - 1,
        now_ms if rules.log_append_time else -1,
        log.log_start_offset,
        header.max_timestamp,
    )


def append_given(log: Log, records: memoryview, now_ms: int, leader_epoch: int | None = None) -> AppendResult:
    """Append batches that have their offsets already: from the leader, or from the Raft leader itself."""
    batches = check_given_batches(records, log.log_end_offset, leader_epoch)
    if not batches:
        return AppendResult(-1, -1, -1, log.log_start_offset, -1)
    headers = tuple(header for _, header in batches)
    total = sum(header.size for header in headers)
    if total <= log.config.segment_bytes and all(header.producer_id < 0 for header in headers):
        log.write_batches(records[:total], headers, now_ms, max(header.max_timestamp for header in headers), None)
        log.advance_end(headers[-1].next_offset)
    else:  # one by one, so that each batch finds the producer state that the one before has left
        for position, header in batches:
            batch = records[position : position + header.size]
            info: ProducerAppendInfo | None = None
            completed: CompletedTxn | None = None
            if header.producer_id >= 0:
                info = log.producers.prepare_update(header.producer_id, AppendOrigin.REPLICATION)
                completed = info.append(header, marker=marker_of(header, batch))
            log.write_batches(batch, (header,), now_ms, header.max_timestamp, completed)
            if info is not None:
                log.producers.update(info)
                if completed is not None:
                    log.producers.complete_txn(completed)
            log.advance_end(header.next_offset)
    return AppendResult(
        headers[0].base_offset,
        headers[-1].last_offset,
        -1,
        log.log_start_offset,
        max(header.max_timestamp for header in headers),
    )
