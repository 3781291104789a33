"""Records inside batches: round trips, a naive twin of the decoder, and every way to be malformed."""

from __future__ import annotations

import random
from collections.abc import Callable
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.compression import Compression, compress
from protocol.errors import DecodeError, EncodeError
from protocol.records import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchBuilder,
    BatchHeader,
    ControlType,
    Record,
    RecordHeader,
    build_batch,
    check_crc,
    control_batch,
    control_records_batch,
    first_record_at_or_after,
    has_null_keys,
    iter_keys,
    iter_records,
    parse_control_key,
    read_header,
)
from protocol.records.header import pack_header
from protocol.records.varint import encode_varint, read_varint, read_varlong

maybe_bytes = st.none() | st.binary(max_size=200)
headers = st.lists(st.builds(RecordHeader, st.text(max_size=8), maybe_bytes), max_size=3).map(tuple)
records_strategy = st.lists(
    st.builds(Record, st.just(0), st.integers(-1, 2**62), maybe_bytes, maybe_bytes, headers),
    min_size=1,
    max_size=12,
)
codecs = st.sampled_from(list(Compression))


# --- the naive twin: one byte at a time from a stream, no fast path, no shared code ---


def twin_varint(stream: BytesIO, bits: int) -> int:
    raw = 0
    for index in range((bits + 6) // 7):
        byte = stream.read(1)
        if not byte:
            raise DecodeError("end")
        raw += (byte[0] % 128) * 128**index
        if byte[0] < 128:
            if raw >= 2**bits:
                raise DecodeError("overflow")
            return raw // 2 if raw % 2 == 0 else -(raw + 1) // 2
    raise DecodeError("endless")


def twin_take(stream: BytesIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise DecodeError("end")
    return data


def twin_bytes(stream: BytesIO) -> bytes | None:
    size = twin_varint(stream, 32)
    return None if size < 0 else twin_take(stream, size)


def twin_records(body: bytes, header: BatchHeader) -> list[Record]:
    stream = BytesIO(body)
    out = []
    for _ in range(header.records_count):
        size = twin_varint(stream, 32)
        if size < 0:
            raise DecodeError("negative")
        record = BytesIO(twin_take(stream, size))
        twin_take(record, 1)
        timestamp = header.base_timestamp + twin_varint(record, 64)
        offset = header.base_offset + twin_varint(record, 32)
        key, value = twin_bytes(record), twin_bytes(record)
        pairs = []
        count = twin_varint(record, 32)
        if count < 0:
            raise DecodeError("negative")
        for _ in range(count):
            name = twin_bytes(record)
            if name is None:
                raise DecodeError("null")
            try:
                pairs.append(RecordHeader(name.decode(), twin_bytes(record)))
            except UnicodeDecodeError:
                raise DecodeError("text") from None
        if record.read() or not -(2**63) <= timestamp < 2**63:
            raise DecodeError("rest")
        out.append(Record(offset, timestamp, key, value, tuple(pairs)))
    if stream.read():
        raise DecodeError("rest")
    return out


def outcome(read: Callable[[], list[Record]]) -> list[Record] | str:
    try:
        return read()
    except DecodeError:
        return "DecodeError"


def raw_batch(body: bytes, count: int = 1, attributes: int = 0) -> bytearray:
    """A batch of any bytes whatever, with a good header and CRC."""
    batch = bytearray(HEADER_SIZE) + body
    pack_header(
        batch,
        BatchHeader(100, len(batch) - LOG_OVERHEAD, 0, 2, 0, attributes, 0, 1000, 1000, -1, -1, -1, count),
    )
    return batch


def at_offsets(records: list[Record], base: int) -> list[Record]:
    return [record._replace(offset=base + delta) for delta, record in enumerate(records)]


# --- varints ---


@given(st.integers(-(2**31), 2**31 - 1))
def test_varint_round_trip(value: int) -> None:
    data = encode_varint(value)
    assert read_varint(data, 0) == (value, len(data))
    assert twin_varint(BytesIO(data), 32) == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlong_round_trip(value: int) -> None:
    data = encode_varint(value)
    assert read_varlong(b"x" + data, 1) == (value, len(data) + 1)
    assert twin_varint(BytesIO(data), 64) == value


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (read_varint, b"\xff" * 5),
        (read_varint, b"\x80" * 100),
        (read_varint, b"\xff\xff\xff\xff\x10"),
        (read_varlong, b"\xff" * 10),
        (read_varlong, b"\x80" * 100),
        (read_varlong, b"\xff" * 9 + b"\x02"),
    ],
)
def test_endless_and_oversized_varints(read: Callable[[bytes, int], tuple[int, int]], data: bytes) -> None:
    with pytest.raises(DecodeError):
        read(data, 0)


# --- whole batches ---


@given(records=records_strategy, codec=codecs, base_offset=st.integers(0, 2**50))
def test_round_trip(records: list[Record], codec: Compression, base_offset: int) -> None:
    batch = build_batch(records, base_offset=base_offset, compression=codec)
    header = read_header(batch)
    assert check_crc(batch)
    assert header.compression == codec
    assert header.max_timestamp == max(record.timestamp for record in records)
    expected = at_offsets(records, base_offset)
    assert list(iter_records(batch)) == expected
    assert list(iter_records(memoryview(bytes(batch)))) == expected
    assert list(iter_keys(batch)) == [(record.offset, record.key) for record in expected]
    assert has_null_keys(batch) == any(record.key is None for record in records)


@given(records=records_strategy, target=st.integers(-2, 2**62 + 1), codec=codecs)
def test_first_record_at_or_after(records: list[Record], target: int, codec: Compression) -> None:
    batch = build_batch(records, compression=codec)
    times = [record.timestamp for record in records]
    for wanted in (target, *times):
        naive = next((record for record in at_offsets(records, 0) if record.timestamp >= wanted), None)
        assert first_record_at_or_after(batch, wanted) == naive


def test_first_record_with_log_append_time_is_the_first() -> None:
    batch = build_batch([Record(0, 1, b"a", b""), Record(0, 2, b"b", b"")], log_append_time=500, base_offset=9)
    assert first_record_at_or_after(batch, 500) == Record(9, 500, b"a", b"")
    assert first_record_at_or_after(batch, 501) is None


@settings(max_examples=300)
@given(body=st.binary(max_size=60), count=st.integers(0, 4))
def test_random_bodies_agree_with_the_twin(body: bytes, count: int) -> None:
    batch = raw_batch(body, count)
    assert outcome(lambda: list(iter_records(batch))) == outcome(lambda: twin_records(body, read_header(batch)))


def test_mutated_bodies_agree_with_the_twin() -> None:
    rng = random.Random(20)
    records = [
        Record(0, 1000 + number, b"k%d" % number, bytes(number * 30), (RecordHeader("h", b"v"),)) for number in range(5)
    ]
    body = bytes(build_batch(records)[HEADER_SIZE:])
    agreed_good = 0
    for _ in range(5000):
        mutated = bytearray(body)
        for _ in range(rng.randint(1, 3)):
            mutated[rng.randrange(len(mutated))] = rng.choice([0, 1, 2, 3, 127, 128, 255, rng.randrange(256)])
        batch = raw_batch(bytes(mutated), 5)
        ours = outcome(lambda batch=batch: list(iter_records(batch)))
        assert ours == outcome(lambda mutated=mutated, batch=batch: twin_records(bytes(mutated), read_header(batch)))
        agreed_good += ours != "DecodeError"
        for helper in (has_null_keys, lambda given: list(iter_keys(given))):
            try:
                helper(batch)
            except DecodeError:
                assert ours == "DecodeError"
    assert agreed_good > 100


@pytest.mark.parametrize("codec", list(Compression), ids=lambda codec: codec.config_name)
def test_truncated_at_every_byte(codec: Compression) -> None:
    records = [Record(0, 1000, b"key", b"value" * 20, (RecordHeader("h", b"v"),)), Record(0, 1001, None, b"")]
    batch = bytes(build_batch(records, compression=codec))
    for size in range(len(batch)):
        with pytest.raises(DecodeError):
            list(iter_records(batch[:size]))
        if size >= HEADER_SIZE:  # and with a header that owns up to the shorter length
            cut = bytearray(batch[:size])
            pack_header(cut, read_header(batch)._replace(batch_length=size - LOG_OVERHEAD))
            with pytest.raises(DecodeError):
                list(iter_records(cut))


def test_trailing_bytes_after_the_batch_and_after_the_last_record() -> None:
    batch = build_batch([Record(0, 1, b"k", b"v")])
    with pytest.raises(DecodeError):
        list(iter_records(batch + b"\0"))
    with pytest.raises(DecodeError):
        list(iter_records(raw_batch(bytes(batch[HEADER_SIZE:]) + b"\0")))


GOOD = "000000" + "026b" + "0276" + "00"  # attributes, +0 ms, +0, key "k", value "v", no headers


@pytest.mark.parametrize(
    "record",
    [
        "",  # nothing at all
        "00",
        "000000",
        GOOD + "00",  # a byte too many
        "000000" + "046b" + "0276" + "00",  # key takes the value's bytes
        "000000" + "026b" + "feffffff0f" + "00",  # a value of 2^31 - 1 bytes
        "000000" + "026b" + "0276" + "01",  # -1 headers
        "000000" + "026b" + "0276" + "feffffff0f",  # 2^31 - 1 headers
        "000000" + "026b" + "0276" + "02",  # one header, missing
        "000000" + "026b" + "0276" + "02" + "01" + "00",  # header without a key
        "000000" + "026b" + "0276" + "02" + "02ff" + "00",  # header key that is no text
        "00" + "ff" * 20,  # a timestamp that never ends
        "0000" + "ff" * 20,  # an offset that never ends
        "000000" + "ff" * 20,  # a key length that never ends
        "00" + "feffffffffffffffff01" + "00" + "01010000",  # timestamp beyond 64 bits, and a byte left
    ],
)
def test_malformed_records(record: str) -> None:
    data = bytes.fromhex(record)
    body = encode_varint(len(data)) + data
    good = bytes.fromhex(GOOD)
    for whole, count in ((body, 1), (encode_varint(len(good)) + good + body, 2)):
        with pytest.raises(DecodeError):
            list(iter_records(raw_batch(whole, count)))


def test_lengths_that_the_batch_cannot_hold() -> None:
    good = bytes.fromhex(GOOD)
    for length in (-1, -(2**31), len(good) - 1, len(good) + 1, 2**31 - 1):
        with pytest.raises(DecodeError):
            list(iter_records(raw_batch(encode_varint(length) + good)))


def test_header_fields_that_contradict_the_batch() -> None:
    batch = build_batch([Record(0, 1, b"k", b"v")])
    good = read_header(batch)
    for change in (
        {"records_count": -1},
        {"records_count": 2},
        {"records_count": 2**31 - 1},
        {"records_count": 0},
    ):
        pack_header(batch, good._replace(**change))
        with pytest.raises(DecodeError):
            list(iter_records(batch))
    for change in ({"magic": 1}, {"attributes": 5}, {"attributes": 7}, {"attributes": 1}):
        pack_header(batch, good._replace(**change))
        with pytest.raises(DecodeError):
            list(iter_records(batch))


def test_a_bomb_is_bounded_by_the_caller() -> None:
    body = compress(Compression.ZSTD, bytes(10_000_000))
    with pytest.raises(DecodeError, match="more than 1000000"):
        list(iter_records(raw_batch(body, 1, Compression.ZSTD), max_decompressed=1_000_000))


def test_any_negative_length_is_null() -> None:
    """Kafka writes -1 and reads every negative length as null."""
    data = bytes.fromhex("000000" + "03" + "05" + "00")
    batch = raw_batch(encode_varint(len(data)) + data)
    assert list(iter_records(batch)) == [Record(100, 1000, None, None)]
    assert has_null_keys(batch)


# --- building ---


def test_builder_keeps_gaps_and_the_offsets_it_stands_for() -> None:
    builder = BatchBuilder()
    assert builder.append(5, b"a", b"1", offset_delta=2) == 2
    assert builder.append(6, b"b", b"2") == 3
    assert builder.append(7, b"c", b"3", offset_delta=9) == 9
    assert (len(builder), builder.next_offset_delta) == (3, 10)
    batch = builder.build(base_offset=100, last_offset_delta=20)
    assert len(batch) == builder.size
    assert [record.offset for record in iter_records(batch)] == [102, 103, 109]
    assert read_header(batch).last_offset == 120


def test_builder_refuses_nonsense() -> None:
    builder = BatchBuilder()
    with pytest.raises(EncodeError):
        builder.build()
    builder.append(5, b"a", b"1", offset_delta=2)
    with pytest.raises(EncodeError):
        builder.append(5, b"a", b"1", offset_delta=2)
    with pytest.raises(EncodeError):
        builder.build(last_offset_delta=1)


def test_an_empty_batch_keeps_its_offsets() -> None:
    """Compaction may leave a producer's last batch without records, so that its sequence is not forgotten."""
    batch = BatchBuilder().build(
        base_offset=7, last_offset_delta=3, producer_id=1, base_sequence=0, compression=Compression.LZ4
    )
    assert list(iter_records(batch)) == []
    assert (read_header(batch).next_offset, len(batch)) == (11, HEADER_SIZE)


# --- control batches ---


@pytest.mark.parametrize("kind", [kind for kind in ControlType if kind != ControlType.UNKNOWN])
def test_control_batches(kind: ControlType) -> None:
    batch = control_batch(kind, 0, b"value", timestamp=77, leader_epoch=4, base_offset=12)
    header = read_header(batch)
    assert header.is_control and not header.is_transactional
    assert (header.base_offset, header.partition_leader_epoch, header.records_count) == (12, 4, 1)
    (record,) = iter_records(batch)
    assert parse_control_key(record.key) == kind
    assert record == Record(12, 77, bytes((0, 0, 0, kind)), b"value")


def test_an_end_transaction_marker_is_its_producers() -> None:
    header = read_header(control_batch(ControlType.COMMIT, 0, b"", 77, producer_id=5, producer_epoch=3))
    assert header.is_control and header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 3, -1)


def test_several_control_records_in_one_batch() -> None:
    kinds = [ControlType.SNAPSHOT_HEADER, ControlType.KRAFT_VERSION, ControlType.KRAFT_VOTERS]
    batch = control_records_batch([(kind, kind.name.encode()) for kind in kinds], 5, leader_epoch=1, base_offset=3)
    assert [parse_control_key(record.key) for record in iter_records(batch)] == kinds
    assert read_header(batch).is_control


def test_control_keys() -> None:
    assert parse_control_key(b"\0\0\0\x63") == ControlType.UNKNOWN
    assert parse_control_key(b"\0\1\0\2later") == ControlType.LEADER_CHANGE
    for key in (None, b"", b"\0\0\0", b"\xff\xff\0\0"):
        with pytest.raises(DecodeError):
            parse_control_key(key)
