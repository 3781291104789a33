"""Reading one partition of `__consumer_offsets` back into a core.

Files are read and records decoded in a thread, a chunk at a time; the loop only replays. So a partition of a gigabyte
delays other requests by milliseconds at a time, and its own groups hear COORDINATOR_LOAD_IN_PROGRESS meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from broker.coordinator.group.core import GroupCoordinator
from broker.coordinator.records import CoordinatorRecord, UnknownRecord, decode_record
from protocol.errors import DecodeError
from protocol.records import NO_PRODUCER_ID, ControlType, iter_batches, iter_records, parse_control_key
from storage.file_slice import FileSlice
from storage.log import Log

log = logging.getLogger("broker.coordinator")

CHUNK_BYTES = 128 * 1024
"""Some 1,500 offset commits: their replay holds the loop for a few milliseconds."""


class _Batch(NamedTuple):
    """What one batch asks of the core. `producer_id` is set for the batches of a transaction and its end."""

    records: list[CoordinatorRecord]
    producer_id: int = NO_PRODUCER_ID
    decision: ControlType | None = None


async def replay_log(source: Log, core: GroupCoordinator) -> int:
    """Replays all that is committed; returns the number of records.

    Offsets committed in a transaction count from its COMMIT marker on; those of a transaction that was aborted, or is
    still open, never did.
    """
    offset = source.log_start_offset
    end_offset = source.high_watermark
    undecided: dict[int, list[CoordinatorRecord]] = {}
    replayed = 0
    while offset < end_offset:
        source = source.successor or source  # the replica may have moved to another log directory
        found = source.read(offset, CHUNK_BYTES, end_offset=end_offset).records
        if found is None:  # only a compaction gap is left
            break
        batches, following = await asyncio.to_thread(_decode_chunk, source.name, found, offset)
        if following <= offset:
            raise DecodeError(f"{source.name}: no whole batch at offset {offset}")
        offset = following
        for batch in batches:
            if batch.decision is not None:
                decided = undecided.pop(batch.producer_id, [])
                records = decided if batch.decision is ControlType.COMMIT else []
            elif batch.producer_id != NO_PRODUCER_ID:
                undecided.setdefault(batch.producer_id, []).extend(batch.records)
                continue
            else:
                records = batch.records
            for record in records:
                core.replay(record)
            replayed += len(records)
        await asyncio.sleep(0)
    return replayed


def _decode_chunk(name: str, chunk: FileSlice, offset: int) -> tuple[list[_Batch], int]:
    """The batches from `offset` on, and the offset behind them."""
    data = memoryview(chunk.read())
    batches: list[_Batch] = []
    for position, header in iter_batches(data):
        batch = data[position : position + header.size]
        offset = header.next_offset
        if header.is_control:
            decision = _decision(batch)
            if decision is not None:
                batches.append(_Batch([], header.producer_id, decision))
            continue
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        batches.append(_Batch(_decode(name, batch), producer_id))
    return batches, offset


def _decision(batch: memoryview) -> ControlType | None:
    for record in iter_records(batch):
        kind = parse_control_key(record.key)
        if kind in (ControlType.COMMIT, ControlType.ABORT):
            return kind
    return None


def _decode(name: str, batch: memoryview) -> list[CoordinatorRecord]:
    records: list[CoordinatorRecord] = []
    for record in iter_records(batch):
        if record.key is None:
            continue
        try:
            records.append(decode_record(record.key, record.value))
        except UnknownRecord as unknown:
            log.warning("%s, offset %d: %s; it is left out", name, record.offset, unknown)
        except DecodeError as error:
            raise DecodeError(f"{name}, offset {record.offset}: {error}") from error
    return records
