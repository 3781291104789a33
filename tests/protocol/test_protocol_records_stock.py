"""Batches against Kafka's own classes, both ways: what Java builds we read, what we build Java reads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError
from support.jvm import java_array

from protocol.compression import LEVELS, Compression, compress, decompress
from protocol.errors import DecodeError
from protocol.records import (
    BatchBuilder,
    ControlType,
    Record,
    RecordHeader,
    build_batch,
    check_crc,
    control_batch,
    first_record_at_or_after,
    iter_batches,
    iter_records,
    read_header,
    set_max_timestamp_and_log_append_time,
)
from protocol.records.header import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, pack_header
from protocol.records.varint import encode_varint

pytestmark = pytest.mark.stock

each_codec = pytest.mark.parametrize("codec", list(Compression), ids=lambda codec: codec.config_name)

RECORDS = [
    Record(40, 1_700_000_000_000, b"key", b"value", (RecordHeader("trace", b"1"), RecordHeader("é", None))),
    Record(41, 1_699_999_999_000, None, b"x" * 70_000),
    Record(42, 1_700_000_005_000, b"", None),
    Record(43, 1_700_000_005_000, b"k" * 200, b"", (RecordHeader("", b""),)),
]


class Oracle:
    """Kafka's classes for record batches, in the shapes that the tests compare."""

    def __init__(self, gateway: JavaGateway) -> None:
        self.gateway = gateway
        self.kafka = gateway.jvm.org.apache.kafka.common
        self.records = self.kafka.record.internal

    def compression(self, codec: Compression) -> Any:
        return self.kafka.compress.Compression.of(codec.config_name).build()

    def buffer(self, data: bytes | bytearray | None) -> Any:
        return None if data is None else self.gateway.jvm.java.nio.ByteBuffer.wrap(bytearray(data))

    def bytes_of(self, buffer: Any) -> bytes | None:
        return None if buffer is None else bytes(self.kafka.utils.Utils.toArray(buffer))

    def build(self, records: list[Record], codec: Compression, **fields: Any) -> bytes:
        times = self.kafka.record.TimestampType
        append_time = fields.get("log_append_time")
        builder = self.records.MemoryRecords.builder(
            self.gateway.jvm.java.nio.ByteBuffer.allocate(1 << 18),
            2,
            self.compression(codec),
            times.CREATE_TIME if append_time is None else times.LOG_APPEND_TIME,
            records[0].offset,
            -1 if append_time is None else append_time,
            fields.get("producer_id", -1),
            fields.get("producer_epoch", -1),
            fields.get("base_sequence", -1),
            fields.get("is_transactional", False),
            False,
            fields.get("leader_epoch", -1),
        )
        for record in records:
            builder.appendWithOffset(
                record.offset,
                record.timestamp,
                self.buffer(record.key),
                self.buffer(record.value),
                self._headers(record),
            )
        return self.bytes_of(builder.build().buffer()) or b""

    def _headers(self, record: Record) -> Any:
        header_type = self.kafka.header.internals.RecordHeader
        made = [header_type(key, None if value is None else bytearray(value)) for key, value in record.headers]
        return java_array(self.gateway, self.kafka.header.Header, made)

    def each(self, iterable: Any) -> list[Any]:
        """Iterated inside Java: py4j's own iterator takes any Java exception for the end."""
        return list(self.kafka.utils.Utils.toList(iterable.iterator()))

    def batches(self, data: bytes | bytearray) -> list[Any]:
        return self.each(self.records.MemoryRecords.readableRecords(self.buffer(data)).batches())

    def header(self, batch: Any) -> dict[str, Any]:
        horizon = batch.deleteHorizonMs()
        return {
            "base_offset": batch.baseOffset(),
            "last_offset": batch.lastOffset(),
            "next_offset": batch.nextOffset(),
            "size": batch.sizeInBytes(),
            "partition_leader_epoch": batch.partitionLeaderEpoch(),
            "magic": batch.magic(),
            "crc": batch.checksum(),
            "max_timestamp": batch.maxTimestamp(),
            "producer_id": batch.producerId(),
            "producer_epoch": batch.producerEpoch(),
            "base_sequence": batch.baseSequence(),
            "last_sequence": batch.lastSequence(),
            "records_count": batch.countOrNull(),
            "is_transactional": batch.isTransactional(),
            "is_control": batch.isControlBatch(),
            "has_producer_id": batch.hasProducerId(),
            "is_log_append_time": batch.timestampType().name() == "LOG_APPEND_TIME",
            "delete_horizon": horizon.getAsLong() if horizon.isPresent() else None,
        }

    def records_of(self, batch: Any) -> list[Record]:
        return [
            Record(
                record.offset(),
                record.timestamp(),
                self.bytes_of(record.key()),
                self.bytes_of(record.value()),
                tuple(
                    RecordHeader(header.key(), None if header.value() is None else bytes(header.value()))
                    for header in record.headers()
                ),
            )
            for record in self.each(batch)
        ]


@pytest.fixture(scope="module")
def oracle(jvm: JavaGateway) -> Oracle:
    return Oracle(jvm)


def assert_java_reads_the_same(oracle: Oracle, batch: bytes | bytearray) -> None:
    (theirs,) = oracle.batches(batch)
    theirs.ensureValid()
    assert check_crc(batch)
    ours = read_header(batch)
    fields = oracle.header(theirs)
    assert {name: getattr(ours, name) for name in fields} == fields
    assert Compression(ours.compression).config_name == theirs.compressionType().toString()
    assert list(iter_records(batch)) == oracle.records_of(theirs)


@each_codec
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"log_append_time": 1_800_000_000_000},
        {"producer_id": 2**40, "producer_epoch": 7, "base_sequence": 2**31 - 2, "leader_epoch": 12},
        {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True},
    ],
    ids=["plain", "append-time", "idempotent", "transactional"],
)
def test_the_same_records_built_on_both_sides(oracle: Oracle, codec: Compression, fields: dict[str, Any]) -> None:
    theirs = oracle.build(RECORDS, codec, **fields)
    ours = build_batch(RECORDS, base_offset=40, compression=codec, **fields)
    assert_java_reads_the_same(oracle, theirs)
    assert_java_reads_the_same(oracle, ours)
    assert list(iter_records(theirs)) == list(iter_records(ours))
    if codec == Compression.NONE:
        assert bytes(ours) == theirs
    else:  # another compressor may choose other bytes, so length and CRC are its own
        same = read_header(ours)._replace(batch_length=0, crc=0)
        assert same == read_header(theirs)._replace(batch_length=0, crc=0)


maybe_bytes = st.none() | st.binary(max_size=60)
random_records = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(0, 2**61),
        maybe_bytes,
        maybe_bytes,
        st.lists(st.builds(RecordHeader, st.text(max_size=4), maybe_bytes), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=random_records, codec=st.sampled_from(list(Compression)))
def test_random_records_read_by_java(oracle: Oracle, records: list[Record], codec: Compression) -> None:
    assert_java_reads_the_same(oracle, build_batch(records, compression=codec))


@pytest.mark.parametrize(
    ("codec", "level"),
    [(Compression.GZIP, level) for level in (-1, 1, 9)]
    + [(Compression.LZ4, level) for level in (1, 2, 9, 12, 17)]
    + [(Compression.ZSTD, level) for level in (-131072, -1, 3, 19, 22)],
)
def test_every_level_is_read_by_java(oracle: Oracle, codec: Compression, level: int) -> None:
    assert_java_reads_the_same(oracle, build_batch(RECORDS, base_offset=40, compression=codec, level=level))


@pytest.mark.parametrize("codec", list(LEVELS), ids=lambda codec: codec.config_name)
def test_the_levels_are_kafkas(oracle: Oracle, codec: Compression) -> None:
    kind = oracle.records.CompressionType.valueOf(codec.name)
    theirs = {*range(kind.minLevel(), kind.maxLevel() + 1), kind.defaultLevel()}
    assert {level for level in LEVELS[codec] if (codec, level) != (Compression.GZIP, 0)} == theirs


def test_java_reads_raw_snappy_as_we_do(oracle: Oracle) -> None:
    """librdkafka and others send snappy without the xerial framing."""
    body = bytes(build_batch(RECORDS, base_offset=40)[HEADER_SIZE:])
    raw = compress(Compression.SNAPPY, body[:30_000])[20:]
    assert decompress(Compression.SNAPPY, raw, 1 << 20) == body[:30_000]
    stream = oracle.compression(Compression.SNAPPY).wrapForInput(
        oracle.buffer(raw), 2, oracle.kafka.utils.BufferSupplier.NO_CACHING
    )
    assert bytes(stream.readAllBytes()) == body[:30_000]


def test_several_batches_of_java_are_walked(oracle: Oracle) -> None:
    data = b"".join(oracle.build(RECORDS, codec) for codec in Compression)
    assert [header.size for _, header in iter_batches(data)] == [batch.sizeInBytes() for batch in oracle.batches(data)]


@each_codec
def test_the_offset_of_the_max_timestamp(oracle: Oracle, codec: Compression) -> None:
    for append_time in (None, 1_800_000_000_000):
        batch = build_batch(RECORDS, base_offset=40, compression=codec, log_append_time=append_time)
        (theirs,) = oracle.batches(batch)
        found = first_record_at_or_after(batch, read_header(batch).max_timestamp)
        assert found is not None
        assert found.offset == theirs.offsetOfMaxTimestamp().get()


def test_log_append_time_is_patched_as_java_patches_it(oracle: Oracle) -> None:
    times = oracle.kafka.record.TimestampType
    ours = build_batch(RECORDS)
    (theirs,) = oracle.batches(ours)
    theirs.setMaxTimestamp(times.LOG_APPEND_TIME, 1_900_000_000_000)
    set_max_timestamp_and_log_append_time(ours, 1_900_000_000_000)
    copy = oracle.gateway.jvm.java.nio.ByteBuffer.allocate(theirs.sizeInBytes())
    theirs.writeTo(copy)
    copy.flip()
    assert bytes(ours) == oracle.bytes_of(copy)


def test_a_delete_horizon_gaps_and_an_empty_batch(oracle: Oracle) -> None:
    builder = BatchBuilder(delete_horizon=1_900_000_000_000)
    builder.append(1_700_000_000_000, b"k", None, offset_delta=3)
    builder.append(1_700_000_000_001, b"l", None, offset_delta=8)
    assert_java_reads_the_same(oracle, builder.build(base_offset=5, last_offset_delta=10))
    empty = BatchBuilder().build(base_offset=5, last_offset_delta=4, producer_id=3, producer_epoch=1, base_sequence=9)
    assert_java_reads_the_same(oracle, empty)


def java_control_batch(oracle: Oracle, kind: ControlType) -> bytes:
    """The control batch that Kafka's own helpers write, with mostly default contents."""
    memory = oracle.records.MemoryRecords
    message = oracle.kafka.message
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        marker = oracle.records.EndTransactionMarker(oracle.records.ControlRecordType.valueOf(kind.name), 6)
        return oracle.bytes_of(memory.withEndTransactionMarker(12, 77, 4, 5, 3, marker).buffer()) or b""
    write, content = {
        ControlType.LEADER_CHANGE: (
            memory.withLeaderChangeMessage,
            message.LeaderChangeMessage().setLeaderId(1),
        ),
        ControlType.SNAPSHOT_HEADER: (memory.withSnapshotHeaderRecord, message.SnapshotHeaderRecord()),
        ControlType.SNAPSHOT_FOOTER: (memory.withSnapshotFooterRecord, message.SnapshotFooterRecord()),
        ControlType.KRAFT_VERSION: (
            memory.withKRaftVersionRecord,
            message.KRaftVersionRecord().setKRaftVersion(1),
        ),
        ControlType.KRAFT_VOTERS: (memory.withVotersRecord, message.VotersRecord()),
    }[kind]
    space = oracle.gateway.jvm.java.nio.ByteBuffer.allocate(1024)
    return oracle.bytes_of(write(12, 77, 4, space, content).buffer()) or b""


@pytest.mark.parametrize("kind", [kind for kind in ControlType if kind != ControlType.UNKNOWN])
def test_control_batches_are_byte_for_byte_javas(oracle: Oracle, kind: ControlType) -> None:
    theirs = java_control_batch(oracle, kind)
    (record,) = iter_records(theirs)
    producer = {"producer_id": 5, "producer_epoch": 3} if kind <= ControlType.COMMIT else {}
    ours = control_batch(kind, 0, record.value or b"", timestamp=77, leader_epoch=4, base_offset=12, **producer)
    assert bytes(ours) == theirs


def test_control_types_are_javas(oracle: Oracle) -> None:
    theirs = {kind.name(): kind.type() for kind in oracle.records.ControlRecordType.values()}
    assert {kind.name: int(kind) for kind in ControlType} == theirs


def batch_of(record: str) -> bytearray:
    data = bytes.fromhex(record)
    batch = bytearray(HEADER_SIZE) + encode_varint(len(data)) + data
    pack_header(batch, BatchHeader(0, len(batch) - LOG_OVERHEAD, 0, 2, 0, 0, 0, 1000, 1000, -1, -1, -1, 1))
    return batch


@pytest.mark.parametrize(
    "record",
    [
        "000000" + "026b" + "0276" + "0000",  # a byte too many
        "000000" + "046b" + "0276" + "00",  # the key takes the value's bytes
        "000000" + "026b" + "0276" + "01",  # -1 headers
        "000000" + "026b" + "0276" + "02",  # a header that is missing
        "000000" + "026b" + "0276" + "02" + "01" + "00",  # a header without a key
        "00" + "ff" * 20,  # a timestamp that never ends
        "0000" + "ff" * 20,  # an offset that never ends
    ],
)
def test_what_java_refuses_we_refuse(oracle: Oracle, record: str) -> None:
    batch = batch_of(record)
    (theirs,) = oracle.batches(batch)
    with pytest.raises(Py4JJavaError):
        oracle.records_of(theirs)
    with pytest.raises(DecodeError):
        list(iter_records(batch))


def test_any_negative_length_is_null_for_java_too(oracle: Oracle) -> None:
    assert_java_reads_the_same(oracle, batch_of("000000" + "03" + "05" + "00"))
