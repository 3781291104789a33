"""What a leader accepts, what it refuses and with which error code, and what it stores in the end."""

from __future__ import annotations

from pathlib import Path
from struct import pack_into
from typing import Any

import pytest
from support.logs import NOW, append, batch, contents, log_config, open_log, timed_batch

from protocol.compression import Compression
from protocol.errors import ApiError, ErrorCode
from protocol.records import (
    BatchHeader,
    ControlType,
    Record,
    build_batch,
    check_crc,
    compute_crc,
    control_batch,
    iter_records,
    read_header,
)
from storage.errors import InvalidRecords, UnexpectedAppendOffset
from storage.log import Log
from storage.results import AppendOrigin


def patched(records: memoryview, position: int, kind: str, value: int, *, renew_crc: bool = True) -> memoryview:
    pack_into(">" + kind, records, position, value)
    if renew_crc:
        pack_into(">I", records, 17, compute_crc(records))
    return records


def refused(log: Log, records: memoryview, **options: Any) -> ErrorCode:
    end, size = log.log_end_offset, log.size_bytes
    with pytest.raises(ApiError) as caught:
        append(log, records, **options)
    assert (log.log_end_offset, log.size_bytes) == (end, size)
    return caught.value.code


def stored(log: Log, offset: int = 0) -> tuple[BatchHeader, bytes]:
    found = log.read(offset, 1, end_offset=log.log_end_offset).records
    assert found is not None
    data = found.read()
    return read_header(data), data


def test_the_bytes_of_the_producer_are_stored_with_offset_and_epoch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(b"zero"))
    sent = batch(b"one", b"two", timestamp=NOW + 5)
    before = bytes(sent)
    result = append(log, sent, leader_epoch=7)
    assert (result.first_offset, result.last_offset, result.log_append_time) == (1, 2, -1)
    assert (result.max_timestamp, result.duplicate, result.log_start_offset) == (NOW + 5, False, 0)
    header, data = stored(log, 1)
    assert (header.base_offset, header.partition_leader_epoch) == (1, 7)
    assert data[16:] == before[16:] and check_crc(data)
    assert log.leader_epochs.entries == ((0, 0), (7, 1))


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (memoryview(bytearray()), ErrorCode.INVALID_RECORD),
        (memoryview(bytearray(b"random")), ErrorCode.INVALID_RECORD),
        (batch(b"cut")[:-1], ErrorCode.INVALID_RECORD),
        (patched(batch(b"length"), 8, "i", 3), ErrorCode.CORRUPT_MESSAGE),
        (patched(batch(b"length"), 8, "i", -1), ErrorCode.CORRUPT_MESSAGE),
        (patched(batch(b"short"), 8, "i", 40), ErrorCode.CORRUPT_MESSAGE),
        (patched(batch(b"magic"), 16, "b", 3), ErrorCode.CORRUPT_MESSAGE),
        (patched(batch(b"magic"), 16, "b", -1), ErrorCode.CORRUPT_MESSAGE),
        (patched(batch(b"magic"), 16, "b", 1), ErrorCode.INVALID_RECORD),
        (patched(batch(b"offset"), 0, "q", 5), ErrorCode.INVALID_RECORD),
        (patched(batch(b"crc"), 17, "I", 1, renew_crc=False), ErrorCode.CORRUPT_MESSAGE),
        (patched(batch(b"byte"), 65, "b", 1, renew_crc=False), ErrorCode.CORRUPT_MESSAGE),
        (patched(batch(b"codec"), 21, "h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (patched(batch(b"count"), 57, "i", 2), ErrorCode.INVALID_RECORD),
        (patched(batch(b"count"), 57, "i", 0), ErrorCode.INVALID_RECORD),
        (patched(batch(b"count"), 57, "i", -1), ErrorCode.INVALID_RECORD),
        (patched(batch(b"delta"), 23, "i", 4), ErrorCode.INVALID_RECORD),
        (patched(patched(batch(b"both"), 23, "i", 999), 57, "i", 1000), ErrorCode.INVALID_RECORD),
        (memoryview(control_batch(ControlType.COMMIT, 0, b"\0" * 6, NOW)), ErrorCode.INVALID_RECORD),
        (batch(b"sequence", producer_id=5, producer_epoch=0), ErrorCode.INVALID_RECORD),
        (memoryview(bytearray(batch(b"two")) + batch(b"batches")), ErrorCode.INVALID_RECORD),
        (batch(b"future", timestamp=NOW + 3_600_001), ErrorCode.INVALID_TIMESTAMP),
        (batch(b"x" * (1 << 20) + b"y" * 1000), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_bad_batches_of_clients(tmp_path: Path, records: memoryview, code: ErrorCode) -> None:
    log = open_log(tmp_path)
    assert refused(log, records) is code
    assert append(log, batch(b"good")).first_offset == 0


def test_the_earlier_check_decides_the_error_code(tmp_path: Path) -> None:
    """A batch that is too large *and* damaged is too large: its CRC is not even computed."""
    log = open_log(tmp_path, log_config(max_message_bytes=80))
    assert refused(log, patched(batch(b"x" * 100), 17, "I", 1, renew_crc=False)) is ErrorCode.MESSAGE_TOO_LARGE


def test_bytes_behind_the_batch_are_left_out(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, memoryview(bytearray(batch(b"whole")) + batch(b"cut")[:30]))
    append(log, batch(b"next"))
    assert contents(log) == [(0, b"whole"), (1, b"next")]


def test_a_batch_larger_than_a_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path, log_config(segment_bytes=200))
    assert refused(log, batch(b"x" * 300)) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_log_append_time(tmp_path: Path) -> None:
    log = open_log(tmp_path, log_config(message_timestamp_type="LogAppendTime"))
    result = append(log, timed_batch(5, 6, 7), now_ms=NOW + 9)
    assert (result.log_append_time, result.max_timestamp) == (NOW + 9, NOW + 9)
    header, data = stored(log)
    assert header.is_log_append_time and check_crc(data)
    assert [record.timestamp for record in iter_records(data)] == [NOW + 9] * 3
    flagged = patched(batch(b"flag"), 21, "h", 8)
    assert refused(log, flagged) is ErrorCode.INVALID_TIMESTAMP


def test_a_producer_cannot_make_its_batch_log_append_time(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, patched(batch(b"flag"), 21, "h", 8))
    header, data = stored(log)
    assert not header.is_log_append_time and check_crc(data)


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("setting", ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_compression_type(tmp_path: Path, setting: str, codec: Compression) -> None:
    log = open_log(tmp_path, log_config(compression_type=setting))
    sent = batch(b"a" * 50, b"b" * 50, compression=codec, producer_id=9, producer_epoch=1, base_sequence=0)
    before = bytes(sent)
    append(log, sent, leader_epoch=3)
    header, data = stored(log)
    names = {"producer": codec, "uncompressed": Compression.NONE}
    expected = names[setting] if setting in names else Compression.from_name(setting)
    assert header.compression == expected and check_crc(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 0)
    assert (header.base_offset, header.partition_leader_epoch) == (0, 3)
    assert [record.value for record in iter_records(data)] == [b"a" * 50, b"b" * 50]
    if expected == codec:
        assert data[16:] == before[16:]


def test_recompression_refuses_what_it_cannot_read(tmp_path: Path) -> None:
    log = open_log(tmp_path, log_config(compression_type="gzip"))
    broken = patched(batch(b"x" * 40), 61, "b", 3)
    assert refused(log, broken) is ErrorCode.INVALID_RECORD


def test_a_compacted_topic_needs_keys(tmp_path: Path) -> None:
    log = open_log(tmp_path, log_config(cleanup_policy=frozenset({"compact"})))
    append(log, batch(b"keyed"))
    records = [Record(0, NOW, key, b"v") for key in (b"k", None, b"k", None)]
    with pytest.raises(InvalidRecords) as caught:
        append(log, memoryview(build_batch(records)))
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in caught.value.record_errors] == [1, 3]


def test_timestamps_before_the_limit(tmp_path: Path) -> None:
    """The batch's header shows the greatest timestamp only, so with this setting each record is looked at."""
    log = open_log(tmp_path, log_config(message_timestamp_before_max_ms=1000))
    append(log, timed_batch(NOW, NOW - 1000))
    assert refused(log, timed_batch(NOW, NOW - 1001)) is ErrorCode.INVALID_TIMESTAMP
    append(log, timed_batch(-1))


def test_duplicates_get_their_first_offset_and_gaps_are_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path)

    def send(sequence: int, count: int = 2, epoch: int = 0) -> Any:
        values = [b"v"] * count
        return append(log, batch(*values, producer_id=77, producer_epoch=epoch, base_sequence=sequence))

    first, second = send(0), send(2)
    assert (first.first_offset, second.first_offset) == (0, 2)
    again = send(0)
    assert again.duplicate and (again.first_offset, again.last_offset) == (0, 1)
    assert log.log_end_offset == 4
    with pytest.raises(ApiError) as caught:
        send(5)
    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(0, epoch=1)
    with pytest.raises(ApiError) as caught:
        send(4)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.log_end_offset == 6
    log.close()
    log = open_log(tmp_path, clean=True, recovery_point=6)
    again = send(0, epoch=1)
    assert again.duplicate and again.first_offset == 4
    log = open_log(tmp_path)  # and after an unclean stop
    assert send(0, epoch=1).duplicate
    assert send(2, epoch=1).first_offset == 6


def test_the_raft_leader_keeps_its_offsets_and_epoch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    data = build_batch([Record(0, NOW, None, b"a")], leader_epoch=4)
    data += build_batch([Record(0, NOW, None, b"b")], leader_epoch=4, base_offset=1)
    result = append(log, memoryview(data), leader_epoch=4, origin=AppendOrigin.RAFT_LEADER)
    assert (result.first_offset, result.last_offset) == (0, 1)
    assert log.read(0, 1 << 20, end_offset=2).records.read() == bytes(data)  # type: ignore[union-attr]
    wrong_epoch = memoryview(build_batch([Record(0, NOW, None, b"c")], leader_epoch=3, base_offset=2))
    assert refused(log, wrong_epoch, leader_epoch=4, origin=AppendOrigin.RAFT_LEADER) is ErrorCode.INVALID_RECORD
    with pytest.raises(UnexpectedAppendOffset):
        log.append_as_follower(memoryview(build_batch([Record(0, NOW, None, b"d")], leader_epoch=4)))


def test_a_follower_is_a_copy(tmp_path: Path) -> None:
    leader, follower = open_log(tmp_path / "a"), open_log(tmp_path / "b")
    for sequence in range(5):
        append(leader, batch(b"v", producer_id=1, producer_epoch=0, base_sequence=sequence), leader_epoch=sequence)
    data = leader.read(0, 1 << 20, end_offset=5).records.read()  # type: ignore[union-attr]
    result = follower.append_as_follower(memoryview(data + data[:40]))
    assert (result.first_offset, result.last_offset) == (0, 4)
    assert follower.read(0, 1 << 20, end_offset=5).records.read() == data  # type: ignore[union-attr]
    assert follower.leader_epochs.entries == leader.leader_epochs.entries
    assert follower.producers.active_producers() == leader.producers.active_producers()


def test_transactions_and_their_markers(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    marker = control_batch(ControlType.ABORT, 0, b"\0\0\0\0\0\7", NOW, producer_id=3, producer_epoch=0)
    options = {"producer_id": 3, "producer_epoch": 0, "is_transactional": True}
    append(log, batch(b"plain"))
    append(log, batch(b"lost", b"lost", base_sequence=0, **options))
    append(log, batch(b"plain"))
    log.advance_high_watermark(4)
    assert log.last_stable_offset == 1
    append(log, memoryview(marker), origin=AppendOrigin.COORDINATOR, transaction_version=1)
    assert log.last_stable_offset == 1
    log.advance_high_watermark(5)
    assert log.last_stable_offset == 5
    expected = [(3, 1, 4, 5)]
    assert log.read(0, 1000, end_offset=5, isolation_committed=True).aborted == expected
    assert log.read(0, 1000, end_offset=5).aborted is None
    log = open_log(tmp_path)  # recovery rebuilds the transaction index
    assert log.read(0, 1000, end_offset=5, isolation_committed=True).aborted == expected
