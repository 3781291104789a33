"""Batch headers: fields, walking, patching in place, and the CRC that says which patches are free."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import DecodeError
from protocol.records import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchBuilder,
    BatchHeader,
    Record,
    build_batch,
    check_crc,
    compute_crc,
    iter_batches,
    iter_records,
    read_header,
    set_base_offset,
    set_leader_epoch,
    set_max_timestamp_and_log_append_time,
)

RECORDS = [Record(0, 1000, b"a", b"1"), Record(0, 3000, b"b", None), Record(0, 2000, None, b"3")]
# Written out by hand from the layout, so that the tests do not only agree with themselves.
HAND_MADE = bytes.fromhex(
    "0000000000000007"  # base offset 7
    "00000039"  # length 57
    "00000003"  # leader epoch 3
    "02"  # magic
    "00000000"  # CRC, checked elsewhere
    "0010"  # transactional
    "00000000"  # last offset delta
    "00000000000003e8"  # base timestamp 1000
    "00000000000003e9"  # max timestamp 1001
    "0000000000000005"  # producer id
    "0001"  # producer epoch
    "00000002"  # base sequence
    "00000001"  # one record
    "0e00020002610100"  # length 7, attributes, +1 ms, +0, key "a", null value, no headers
)


def header(**fields: int) -> BatchHeader:
    return read_header(build_batch(RECORDS))._replace(**fields)


def test_a_hand_made_batch() -> None:
    assert read_header(HAND_MADE) == (7, 57, 3, 2, 0, 0x10, 0, 1000, 1001, 5, 1, 2, 1)
    assert list(iter_records(HAND_MADE)) == [Record(7, 1001, b"a", None)]


def test_the_header_of_a_built_batch() -> None:
    batch = build_batch(
        RECORDS,
        base_offset=40,
        producer_id=9,
        producer_epoch=2,
        base_sequence=5,
        leader_epoch=6,
        is_transactional=True,
    )
    got = read_header(batch)
    assert got.size == len(batch) == got.batch_length + LOG_OVERHEAD
    assert (got.base_offset, got.last_offset, got.next_offset, got.records_count) == (40, 42, 43, 3)
    assert (got.base_timestamp, got.max_timestamp) == (1000, 3000)
    assert (got.producer_id, got.producer_epoch, got.base_sequence, got.last_sequence) == (9, 2, 5, 7)
    assert got.partition_leader_epoch == 6
    assert got.is_transactional and got.has_producer_id
    assert not got.is_control and not got.is_log_append_time
    assert got.delete_horizon is None


def test_attribute_bits() -> None:
    assert header(attributes=0x04).compression == 4
    assert header(attributes=0x08).is_log_append_time
    assert header(attributes=0x10).is_transactional
    assert header(attributes=0x20).is_control
    assert header(attributes=0x40, base_timestamp=77).delete_horizon == 77


@pytest.mark.parametrize(
    ("base", "delta", "last"),
    [(0, 0, 0), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 5, 2), (-1, 4, -1)],
)
def test_sequences_wrap(base: int, delta: int, last: int) -> None:
    assert header(base_sequence=base, last_offset_delta=delta).last_sequence == last


def test_a_short_header_at_every_length() -> None:
    for size in range(HEADER_SIZE):
        with pytest.raises(DecodeError):
            read_header(HAND_MADE[:size])
    with pytest.raises(DecodeError):
        read_header(HAND_MADE, len(HAND_MADE) - HEADER_SIZE + 1)


def test_walking_over_batches_cut_at_every_byte() -> None:
    batches = [build_batch(RECORDS[:count], base_offset=10 * count) for count in (1, 2, 3)]
    whole = b"".join(batches)
    starts = [0, len(batches[0]), len(batches[0]) + len(batches[1])]
    ends = [*starts[1:], len(whole)]
    for size in range(len(whole) + 1):
        expected = [start for start, end in zip(starts, ends, strict=True) if end <= size]
        assert [pos for pos, _ in iter_batches(whole[:size])] == expected
        assert [pos for pos, _ in iter_batches(whole, 0, size)] == expected
    assert [got.base_offset for _, got in iter_batches(whole, starts[1])] == [20, 30]


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_an_impossible_length_is_damage(length: int) -> None:
    batch = bytearray(HAND_MADE)
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    for size in (LOG_OVERHEAD, HEADER_SIZE - 1, HEADER_SIZE, len(batch)):
        walk = iter_batches(HAND_MADE + batch[:size])
        assert next(walk)[0] == 0
        with pytest.raises(DecodeError):
            next(walk)


def test_a_length_beyond_the_buffer_is_a_partial_tail() -> None:
    batch = bytearray(HAND_MADE)
    batch[8:12] = (2**31 - 1).to_bytes(4, "big")
    assert list(iter_batches(batch)) == []


def test_a_mapped_file_can_be_walked_and_closed(tmp_path: Path) -> None:
    """Nothing may keep a view of the mapping: closing it would raise BufferError."""
    path = tmp_path / "segment"
    path.write_bytes(build_batch(RECORDS) * 3)
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped,
        memoryview(mapped) as view,
    ):
        assert [check_crc(view, pos, got) for pos, got in iter_batches(view)] == [True] * 3


def test_the_crc_covers_attributes_to_the_end_and_nothing_before() -> None:
    batch = build_batch(RECORDS)
    for position in range(len(batch)):
        damaged = bytearray(batch)
        damaged[position] ^= 0xFF
        if position in range(8, 12):
            continue  # the length decides what is checked
        outside = position < 17
        assert check_crc(damaged) is outside, position


def test_the_crc_of_a_batch_inside_a_buffer() -> None:
    one, two = build_batch(RECORDS[:1]), build_batch(RECORDS)
    both = one + two
    assert compute_crc(both, 0, len(one)) == read_header(one).crc
    assert compute_crc(both, len(one)) == read_header(two).crc
    assert check_crc(both) and check_crc(both, len(one))
    with pytest.raises(DecodeError):
        compute_crc(both, len(one), len(two) + 1)
    with pytest.raises(DecodeError):
        check_crc(two[:-1])


@given(offset=st.integers(0, 2**63 - 1), epoch=st.integers(-1, 2**31 - 1))
def test_patching_offset_and_epoch_keeps_the_crc(offset: int, epoch: int) -> None:
    prefix = b"before"
    batch = build_batch(RECORDS)
    buffer = bytearray(prefix + batch + b"after")
    view = memoryview(buffer)
    set_base_offset(view, offset, len(prefix))
    set_leader_epoch(view, epoch, len(prefix))
    patched = read_header(view, len(prefix))
    assert patched == read_header(batch)._replace(base_offset=offset, partition_leader_epoch=epoch)
    assert check_crc(view, len(prefix))
    assert buffer.startswith(prefix) and buffer.endswith(b"after")


def test_log_append_time_renews_the_crc_and_the_time_of_every_record() -> None:
    buffer = b"before" + build_batch(RECORDS, is_transactional=True, producer_id=1)
    buffer = bytearray(buffer)
    set_max_timestamp_and_log_append_time(buffer, 9999, 6)
    patched = read_header(buffer, 6)
    assert patched.is_log_append_time and patched.is_transactional and patched.max_timestamp == 9999
    assert check_crc(buffer, 6)
    assert [record.timestamp for record in iter_records(buffer[6:])] == [9999] * 3
    set_max_timestamp_and_log_append_time(buffer, 3000, 6, log_append_time=False)
    assert not read_header(buffer, 6).is_log_append_time
    assert check_crc(buffer, 6)
    assert [record.timestamp for record in iter_records(buffer[6:])] == [1000, 3000, 2000]


def test_a_batch_that_says_so_already_is_left_alone() -> None:
    batch = build_batch(RECORDS, log_append_time=5000)
    batch[17] ^= 0xFF  # a wrong CRC shows whether it is renewed
    before = bytes(batch)
    set_max_timestamp_and_log_append_time(batch, 5000)
    assert batch == before


def test_a_delete_horizon_stands_in_for_the_base_timestamp() -> None:
    builder = BatchBuilder(delete_horizon=100_000)
    builder.append(1000, b"k", None)
    got = builder.build()
    assert read_header(got).delete_horizon == 100_000
    assert [record.timestamp for record in iter_records(got)] == [1000]
