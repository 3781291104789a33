"""Building batches: what controller and coordinators write, and recompression and compaction rewrite."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from protocol.compression import Compression, compress
from protocol.errors import EncodeError
from protocol.records.header import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    pack_header,
)
from protocol.records.varint import encode_varint

Headers = Sequence[tuple[str, bytes | None]]
_MAX_INT32 = 0x7FFFFFFF
_NULL = encode_varint(-1)


class RecordLike(Protocol):
    """What `build_batch` needs of a record: a `Record` has it, and so may a caller's own type."""

    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...


class BatchBuilder:
    """One batch, record by record; `size` tells the caller when to stop.

    Offsets are consecutive unless given. Compaction gives them, and `last_offset_delta` to `build`, because a
    batch keeps standing for the offsets of the records it has lost.
    """

    __slots__ = ("_base_timestamp", "_body", "_count", "_delete_horizon", "_last_delta", "_max_timestamp")

    def __init__(self, *, delete_horizon: int | None = None) -> None:
        self._body = bytearray()
        self._count = 0
        self._last_delta = -1
        self._delete_horizon = delete_horizon
        self._base_timestamp = NO_TIMESTAMP if delete_horizon is None else delete_horizon
        self._max_timestamp = NO_TIMESTAMP

    def __len__(self) -> int:
        return self._count

    @property
    def size(self) -> int:
        """Bytes of the batch so far, before compression."""
        return HEADER_SIZE + len(self._body)

    @property
    def next_offset_delta(self) -> int:
        return self._last_delta + 1

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        *,
        offset_delta: int | None = None,
    ) -> int:
        """Add a record and return its offset delta."""
        delta = self._last_delta + 1 if offset_delta is None else offset_delta
        if not self._last_delta < delta <= _MAX_INT32:
            raise EncodeError(f"offset delta {delta} does not follow {self._last_delta}")
        if self._count == 0 and self._delete_horizon is None:
            self._base_timestamp = timestamp
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        record = _encode_record(timestamp - self._base_timestamp, delta, key, value, headers)
        self._body += encode_varint(len(record))
        self._body += record
        self._last_delta = delta
        self._count += 1
        return delta

    def build(
        self,
        *,
        base_offset: int = 0,
        compression: Compression = Compression.NONE,
        level: int | None = None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        leader_epoch: int = NO_LEADER_EPOCH,
        is_transactional: bool = False,
        is_control: bool = False,
        log_append_time: int | None = None,
        last_offset_delta: int | None = None,
    ) -> bytearray:
        """The finished batch, writable so that its owner may still patch offset and epoch."""
        last_delta = self._last_delta if last_offset_delta is None else last_offset_delta
        if last_delta < max(self._last_delta, 0):
            raise EncodeError("a batch needs a record, or the last offset delta it stands for")
        attributes = int(compression) if self._count else 0
        if is_transactional:
            attributes |= TRANSACTIONAL_FLAG
        if is_control:
            attributes |= CONTROL_FLAG
        if self._delete_horizon is not None:
            attributes |= DELETE_HORIZON_FLAG
        max_timestamp = self._max_timestamp
        if log_append_time is not None:
            attributes |= LOG_APPEND_TIME_FLAG
            max_timestamp = log_append_time
        batch = bytearray(HEADER_SIZE)
        if compression == Compression.NONE or not self._count:
            batch += self._body
        else:
            batch += compress(compression, self._body, level)
        if len(batch) > _MAX_INT32:
            raise EncodeError(f"a batch of {len(batch)} bytes exceeds what its length field can say")
        header = BatchHeader(
            base_offset=base_offset,
            batch_length=len(batch) - LOG_OVERHEAD,
            partition_leader_epoch=leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=attributes,
            last_offset_delta=last_delta,
            base_timestamp=self._base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            records_count=self._count,
        )
        pack_header(batch, header)
        return batch


def build_batch(
    records: Iterable[RecordLike],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    leader_epoch: int = NO_LEADER_EPOCH,
    is_transactional: bool = False,
    is_control: bool = False,
    log_append_time: int | None = None,
) -> bytearray:
    """A batch of these records at consecutive offsets; an offset that a record carries is not looked at."""
    builder = BatchBuilder()
    for record in records:
        builder.append(record.timestamp, record.key, record.value, record.headers)
    return builder.build(
        base_offset=base_offset,
        compression=compression,
        level=level,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        leader_epoch=leader_epoch,
        is_transactional=is_transactional,
        is_control=is_control,
        log_append_time=log_append_time,
    )


def _encode_record(
    timestamp_delta: int, offset_delta: int, key: bytes | None, value: bytes | None, headers: Headers
) -> bytes:
    parts = [b"\0", encode_varint(timestamp_delta), encode_varint(offset_delta)]
    _put_bytes(parts, key)
    _put_bytes(parts, value)
    parts.append(encode_varint(len(headers)))
    for header_key, header_value in headers:
        _put_bytes(parts, header_key.encode())
        _put_bytes(parts, header_value)
    return b"".join(parts)


def _put_bytes(parts: list[bytes], data: bytes | None) -> None:
    if data is None:
        parts.append(_NULL)
    else:
        parts.append(encode_varint(len(data)))
        parts.append(data)
