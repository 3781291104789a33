"""The codec of producer snapshots."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from py4j.java_gateway import JavaGateway

from storage.snapshot_file import (
    CorruptSnapshot,
    SnapshotEntry,
    decode_snapshot,
    encode_snapshot,
    list_snapshots,
    read_snapshot,
    snapshot_path,
    sync_snapshot,
    write_snapshot,
)

ENTRIES = [SnapshotEntry(1, 0, 41, 99, 4, 1_700_000_000_000, -1, -1), SnapshotEntry(2**40, 7, -1, -1, 0, 5, 3, 17)]


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


entries = st.builds(SnapshotEntry, *map(integers, (64, 16, 32, 64, 32, 64, 32, 64)))


def test_empty() -> None:
    data = encode_snapshot([])
    assert data[:2] == b"\x00\x01"
    assert len(data) == 10
    assert decode_snapshot(data) == []


@given(st.lists(entries, max_size=20))
def test_round_trip(values: list[SnapshotEntry]) -> None:
    data = encode_snapshot(values)
    assert len(data) == 10 + 46 * len(values)
    assert decode_snapshot(data) == values


def test_every_truncation_and_every_changed_byte_is_found() -> None:
    data = encode_snapshot(ENTRIES)
    for end in range(len(data)):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(data[:end])
    for at in range(len(data)):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(data + b"\x00")


def test_a_count_that_lies_is_found_before_anything_is_allocated() -> None:
    data = bytearray(encode_snapshot(ENTRIES))
    data[6:10] = (2**31 - 1).to_bytes(4, "big")
    data[2:6] = crc32c(bytes(data[6:])).to_bytes(4, "big")
    with pytest.raises(CorruptSnapshot, match="promises 2147483647 entries"):
        decode_snapshot(bytes(data))


def test_files(tmp_path: Path) -> None:
    directory = str(tmp_path)
    assert list_snapshots(directory + "/none") == {}
    for offset in (100, 7, 2**40):
        write_snapshot(snapshot_path(directory, offset), ENTRIES, sync=offset == 7)
    write_snapshot(snapshot_path(directory, 7), ENTRIES[:1])
    for name in ("00000000000000000009.snapshot.deleted", "9.snapshot", "00000000000000000009.log", "x.snapshot"):
        (tmp_path / name).touch()
    found = list_snapshots(directory)
    assert list(found) == [7, 100, 2**40]
    assert os.path.basename(found[7]) == "00000000000000000007.snapshot"
    assert read_snapshot(found[7]) == ENTRIES[:1], "a shorter one over a longer one"
    assert read_snapshot(found[100]) == ENTRIES
    sync_snapshot(found[100])
    sync_snapshot(found[100] + ".gone")
    (tmp_path / os.path.basename(found[100])).write_bytes(b"")
    with pytest.raises(CorruptSnapshot, match=found[100]):
        read_snapshot(found[100])


@pytest.mark.stock
def test_kafka_reads_ours_and_writes_the_same(jvm: JavaGateway, tmp_path: Path) -> None:
    java = jvm.jvm.org.apache.kafka.storage.internals.log.ProducerStateManager
    path = snapshot_path(str(tmp_path), 100)
    write_snapshot(path, ENTRIES)
    read = java.readSnapshot(jvm.jvm.java.io.File(path))
    found = [
        (
            e.producerId(),
            e.producerEpoch(),
            e.lastDataOffset(),
            e.lastTimestamp(),
            e.coordinatorEpoch(),
            e.currentTxnFirstOffset().orElse(-1),
        )
        for e in read
    ]
    assert found == [
        (e.producer_id, e.epoch, e.last_offset, e.timestamp, e.coordinator_epoch, e.current_txn_first_offset)
        for e in ENTRIES
    ]
