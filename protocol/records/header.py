"""The 61-byte header of a record batch (magic 2), and what can be done to a batch without its records.

This is the hot path of produce, fetch and recovery: one `unpack_from` per batch, in-place patches, and a CRC
over a memoryview. The CRC covers the bytes from the attributes on, so base offset and leader epoch, which the
leader assigns, lie outside it and may be patched freely.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, error
from typing import NamedTuple

from crc32c import crc32c

from protocol.errors import DecodeError

Buffer = bytes | bytearray | memoryview
"""What a batch may be read from. A mapped file is passed as a memoryview of it."""

HEADER_SIZE = 61
LOG_OVERHEAD = 12
"""Base offset and batch length: the bytes that `batch_length` does not count."""
MAGIC = 2
MAGIC_POSITION = 16
"""Where the magic byte stands, in the older formats too, so that they can be told from damage."""

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

_HEADER = Struct(">qiibIhiqqqhii")
_LENGTH = Struct(">i")
_BASE_OFFSET = Struct(">q")
_LEADER_EPOCH = Struct(">i")
_CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
_TIMESTAMP = Struct(">q")

_LENGTH_POSITION = 8
_LEADER_EPOCH_POSITION = 12
_CRC_POSITION = 17
_ATTRIBUTES_POSITION = 21
ATTRIBUTES_LOW_BYTE = _ATTRIBUTES_POSITION + 1
"""Where all flags of a batch stand that exist so far."""
_MAX_TIMESTAMP_POSITION = 35
_MIN_LENGTH = HEADER_SIZE - LOG_OVERHEAD
_MAX_INT32 = 0x7FFFFFFF

assert _HEADER.size == HEADER_SIZE


class BatchHeader(NamedTuple):
    """The 13 fields of a batch header in wire order; nothing is validated by reading it."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, from its base offset to its last record."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """The last offset the batch stands for, even where compaction has removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        """The codec's number as the client wrote it: 5 to 7 are not assigned."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_FLAG != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap to 0 after 2^31 - 1. -1 without a producer."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & _MAX_INT32

    @property
    def delete_horizon(self) -> int | None:
        """When the batch's tombstones and markers may go; it stands in for the base timestamp (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None


def read_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """The header at `pos`; DecodeError when fewer than 61 bytes are left. No field is checked."""
    try:
        return _new_tuple(BatchHeader, _unpack_header(buf, pos))
    except error:
        raise DecodeError(f"a batch header needs {HEADER_SIZE} bytes, {len(buf) - pos} are left") from None


# A named tuple's own constructor spreads 13 arguments; building the tuple directly halves the cost per batch.
_new_tuple = tuple.__new__
_unpack_header = _HEADER.unpack_from


def iter_batches(buf: Buffer, pos: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every whole batch between `pos` and `end`, without touching records.

    A partial batch at the end is normal (a fetch response may cut one, a crash may tear one), so the walk
    just stops there; the caller sees by the last position how far it came. A length that no batch can have
    is damage.
    """
    if end is None:
        end = len(buf)
    last_header = end - HEADER_SIZE
    unpack, new, cls = _unpack_header, _new_tuple, BatchHeader
    while pos <= last_header:
        header = new(cls, unpack(buf, pos))
        length = header[1]
        if length < _MIN_LENGTH:
            raise DecodeError(f"a batch at position {pos} claims {length} bytes, {_MIN_LENGTH} is the least")
        following = pos + length + LOG_OVERHEAD
        if following > end:
            return
        yield pos, header
        pos = following
    if pos + LOG_OVERHEAD <= end:
        (length,) = _LENGTH.unpack_from(buf, pos + _LENGTH_POSITION)
        if length < _MIN_LENGTH:
            raise DecodeError(f"a batch at position {pos} claims {length} bytes, {_MIN_LENGTH} is the least")


def compute_crc(buf: Buffer, pos: int = 0, size: int | None = None) -> int:
    """CRC-32C of the batch at `pos` of `size` bytes (default: to the end of the buffer); copies nothing."""
    end = len(buf) if size is None else pos + size
    if pos + HEADER_SIZE > end or end > len(buf):
        raise DecodeError("the buffer ends inside the batch")
    return int(crc32c(memoryview(buf)[pos + _ATTRIBUTES_POSITION : end]))


def check_crc(buf: Buffer, pos: int = 0, header: BatchHeader | None = None) -> bool:
    """Whether the batch at `pos` is what its writer checksummed. Pass the header if it was read already."""
    if header is None:
        header = read_header(buf, pos)
    return compute_crc(buf, pos, header[1] + LOG_OVERHEAD) == header[4]


def set_base_offset(buf: bytearray | memoryview, base_offset: int, pos: int = 0) -> None:
    """Give the batch its place in the log; outside the CRC."""
    _BASE_OFFSET.pack_into(buf, pos, base_offset)


def set_leader_epoch(buf: bytearray | memoryview, leader_epoch: int, pos: int = 0) -> None:
    """Stamp the batch with the epoch of the leader that appended it; outside the CRC."""
    _LEADER_EPOCH.pack_into(buf, pos + _LEADER_EPOCH_POSITION, leader_epoch)


def set_max_timestamp_and_log_append_time(
    buf: bytearray | memoryview, max_timestamp: int, pos: int = 0, *, log_append_time: bool = True
) -> None:
    """Set the timestamp type and the max timestamp, and renew the CRC, which covers both.

    With log append time every record of the batch has `max_timestamp` as its time, whatever its own says.
    A batch that already says so is left alone, which saves the CRC.
    """
    header = read_header(buf, pos)
    if log_append_time:
        attributes = header.attributes | LOG_APPEND_TIME_FLAG
    else:
        attributes = header.attributes & ~LOG_APPEND_TIME_FLAG
    if attributes == header.attributes and max_timestamp == header.max_timestamp:
        return
    _ATTRIBUTES.pack_into(buf, pos + _ATTRIBUTES_POSITION, attributes)
    _TIMESTAMP.pack_into(buf, pos + _MAX_TIMESTAMP_POSITION, max_timestamp)
    _CRC.pack_into(buf, pos + _CRC_POSITION, compute_crc(buf, pos, header.size))


def pack_header(buf: bytearray, header: BatchHeader) -> None:
    """Write `header` over the first 61 bytes and set the CRC of what the buffer then holds."""
    _HEADER.pack_into(buf, 0, *header)
    _CRC.pack_into(buf, _CRC_POSITION, compute_crc(buf))
