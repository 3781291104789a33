"""Reading the records inside a batch: bounded, strict, and only when somebody asks.

A batch comes from a peer or a disk, so every length is checked against what is really there before anything
is sliced, and what a record declares must be exactly what it uses. Offsets and timestamps are reported as
written: whether they are consecutive or plausible is for the log's validation to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from protocol.compression import Compression, decompress
from protocol.errors import DecodeError
from protocol.records.header import HEADER_SIZE, MAGIC, BatchHeader, Buffer, read_header
from protocol.records.varint import read_varint, read_varlong

MAX_DECOMPRESSED = 100 * 1024 * 1024
"""Default bound of a decompressed batch. It is the default of `socket.request.max.bytes`: an uncompressed
batch cannot be larger than that either."""

_MIN_INT64 = -(1 << 63)
_MAX_INT64 = (1 << 63) - 1


class RecordHeader(NamedTuple):
    key: str
    value: bytes | None


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[RecordHeader, ...] = ()


# Where a record is: its timestamp delta, its offset delta, the position of its key, and its end. A plain tuple,
# because one is made for every record.
_Place = tuple[int, int, int, int]


def iter_records(batch: Buffer, *, max_decompressed: int = MAX_DECOMPRESSED) -> Iterator[Record]:
    """The records of exactly one batch. DecodeError on anything malformed, when the iteration reaches it."""
    header = read_header(batch)
    body = _body(batch, header, max_decompressed)
    for place in _places(body, header.records_count):
        yield _record(body, place, header)


def iter_keys(batch: Buffer, *, max_decompressed: int = MAX_DECOMPRESSED) -> Iterator[tuple[int, bytes | None]]:
    """(offset, key) of each record: what a compacted topic's index of latest keys is built from."""
    header = read_header(batch)
    body = _body(batch, header, max_decompressed)
    base_offset = header.base_offset
    for _, offset_delta, key_position, end in _places(body, header.records_count):
        key, _ = _read_bytes(body, key_position, end, "key")
        yield base_offset + offset_delta, key


def has_null_keys(batch: Buffer, *, max_decompressed: int = MAX_DECOMPRESSED) -> bool:
    """Whether some record has no key, which a compacted topic refuses."""
    header = read_header(batch)
    body = _body(batch, header, max_decompressed)
    return any(
        _read_length(body, key_position, end)[0] < 0 for _, _, key_position, end in _places(body, header.records_count)
    )


def first_record_at_or_after(
    batch: Buffer, target_timestamp: int, *, max_decompressed: int = MAX_DECOMPRESSED
) -> Record | None:
    """The first record whose time is at least `target_timestamp`; only that one is read in full.

    With the batch's max timestamp as target it is the record that ListOffsets' max-timestamp query asks for.
    """
    header = read_header(batch)
    if header.max_timestamp < target_timestamp:
        return None  # the header's word is taken, as the time index takes it: no record is read to check it
    body = _body(batch, header, max_decompressed)
    least_delta = target_timestamp - header.base_timestamp
    any_time = header.is_log_append_time
    for place in _places(body, header.records_count):
        if any_time or place[0] >= least_delta:
            return _record(body, place, header)
    return None


def _body(batch: Buffer, header: BatchHeader, max_decompressed: int) -> bytes:
    """The batch's records as plain bytes, after the checks that make the header's fields usable."""
    if header.magic != MAGIC:
        raise DecodeError(f"record batch of magic {header.magic}, only {MAGIC} is supported")
    if header.size != len(batch):
        raise DecodeError(f"the batch claims {header.size} bytes and has {len(batch)}")
    if header.records_count < 0:
        raise DecodeError(f"the batch claims {header.records_count} records")
    with memoryview(batch) as view:
        codec = header.compression
        if codec == Compression.NONE or (header.records_count == 0 and header.size == HEADER_SIZE):
            return bytes(view[HEADER_SIZE:])
        if codec > Compression.ZSTD:
            raise DecodeError(f"unknown compression codec {codec}")
        return decompress(Compression(codec), view[HEADER_SIZE:], max_decompressed)


def _places(body: bytes, count: int) -> Iterator[_Place]:
    """Walk over the records by their lengths; that its fields fit is checked by the reader of a record."""
    pos = 0
    size = len(body)
    try:
        for _ in range(count):
            length, pos = read_varint(body, pos)
            end = pos + length
            if length < 0 or end > size:
                raise DecodeError(f"a record claims {length} bytes, {size - pos} are left in its batch")
            timestamp_delta, pos = read_varlong(body, pos + 1)  # one byte of attributes, all unused
            offset_delta, pos = read_varint(body, pos)
            if pos >= end:
                raise DecodeError("a record ends before its key")
            yield timestamp_delta, offset_delta, pos, end
            pos = end
    except IndexError:
        raise DecodeError("the batch ends inside a record") from None
    if pos != size:
        raise DecodeError(f"{size - pos} bytes follow the last record of the batch")


def _record(body: bytes, place: _Place, header: BatchHeader) -> Record:
    timestamp_delta, offset_delta, pos, end = place
    if header.is_log_append_time:
        timestamp = header.max_timestamp
    else:
        timestamp = header.base_timestamp + timestamp_delta
        if not _MIN_INT64 <= timestamp <= _MAX_INT64:
            raise DecodeError("a record's timestamp exceeds 64 bits")
    key, pos = _read_bytes(body, pos, end, "key")
    value, pos = _read_bytes(body, pos, end, "value")
    headers: tuple[RecordHeader, ...] = ()
    if pos + 1 != end or body[pos] != 0:  # anything but one zero byte, "no headers"
        headers, pos = _read_headers(body, pos, end)
        if pos != end:
            raise DecodeError(f"a record has {end - pos} bytes more than its fields")
    return Record(header.base_offset + offset_delta, timestamp, key, value, headers)


def _read_headers(body: bytes, pos: int, end: int) -> tuple[tuple[RecordHeader, ...], int]:
    count, pos = _read_length(body, pos, end)
    if not 0 <= count <= end - pos:
        raise DecodeError(f"a record claims {count} headers")
    headers = []
    for _ in range(count):
        key, pos = _read_bytes(body, pos, end, "header key")
        if key is None:
            raise DecodeError("a record header has no key")
        value, pos = _read_bytes(body, pos, end, "header value")
        try:
            headers.append(RecordHeader(key.decode(), value))
        except UnicodeDecodeError:
            raise DecodeError("a record header's key is not UTF-8") from None
    return tuple(headers), pos


def _read_bytes(body: bytes, pos: int, end: int, what: str) -> tuple[bytes | None, int]:
    """A length and that many bytes, all before `end`. Any negative length is null, as for Kafka's readers."""
    length = body[pos] if pos < end else 0x80
    if length < 0x80:  # one byte says it all for most keys and small values
        length = (length >> 1) ^ -(length & 1)
        pos += 1
    else:
        length, pos = _read_length(body, pos, end)
    if length < 0:
        return None, pos
    if length > end - pos:
        raise DecodeError(f"the {what} of a record claims {length} bytes, {end - pos} are left in the record")
    return body[pos : pos + length], pos + length


def _read_length(body: bytes, pos: int, end: int) -> tuple[int, int]:
    try:
        length, pos = read_varint(body, pos)
    except IndexError:
        raise DecodeError("the batch ends inside a record") from None
    if pos > end:
        raise DecodeError("a record ends inside a length")
    return length, pos
