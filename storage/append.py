"""What a leader checks before it stores a batch, and how it rewrites one that cannot be stored as it came.

The common batch (stored in the producer's codec, with the producer's timestamps, topic not compacted) is judged by
its 61-byte header and its CRC alone; no record is looked at. The checks come in Apache Kafka's order, so that a
batch with two faults earns the same error code.

Where this differs from Apache Kafka, on purpose: Kafka walks the records of every batch, to count them, to renew the
batch's greatest timestamp and to refuse malformed records. Here the producer's word is taken for all three. A batch
with a right CRC but broken records inside can only come from a broken producer, and what it does is limited to its own
partition's readers: their clients refuse the batch, the broker never parses it on the way, and a time look-up that
meets it skips it. Records are looked at only where a topic's own setting demands it: keys if it is compacted, each
timestamp if `message.timestamp.before.max.ms` is set, all of it if `compression.type` names another codec.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from config.topic import LogConfig
from protocol.compression import Compression
from protocol.errors import ApiError, DecodeError, ErrorCode
from protocol.records import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    BatchHeader,
    Record,
    build_batch,
    check_crc,
    iter_records,
    read_header,
    set_max_timestamp_and_log_append_time,
)
from storage.errors import InvalidRecords, UnexpectedAppendOffset

LONG_MAX = (1 << 63) - 1
_LENGTH = Struct(">i")
_MIN_LENGTH = 14  # the smallest entry of any format Kafka ever had; below it the length itself is damaged
_MIN_RECORD = 7  # length, attributes, two deltas, two lengths and a header count: one byte each at least
_LOG_APPEND_TIME = 0x08
_CONTROL = 0x20
_SHOWN_ERRORS = 3


class AppendRules:
    """A topic's settings as the hot path needs them: resolved once per change, compared as integers."""

    __slots__ = (
        "after_max_ms",
        "before_max_ms",
        "codec",
        "compact",
        "flushes",
        "level",
        "log_append_time",
        "looks_at_records",
        "max_message_bytes",
    )

    def __init__(self, config: LogConfig) -> None:
        self.max_message_bytes = config.max_message_bytes
        self.log_append_time = config.message_timestamp_type == "LogAppendTime"
        self.before_max_ms = config.message_timestamp_before_max_ms
        self.after_max_ms = config.message_timestamp_after_max_ms
        self.compact = config.is_compact
        self.flushes = min(config.flush_messages, config.flush_ms) != LONG_MAX
        self.codec, self.level = _target_codec(config)
        self.looks_at_records = self.compact or (not self.log_append_time and self.before_max_ms != LONG_MAX)


def _target_codec(config: LogConfig) -> tuple[Compression | None, int | None]:
    """None means: store what the producer sent."""
    name = config.compression_type
    if name == "producer":
        return None, None
    if name == "uncompressed":
        return Compression.NONE, None
    levels: dict[str, Callable[[], int]] = {
        "gzip": lambda: config.compression_gzip_level,
        "lz4": lambda: config.compression_lz4_level,
        "zstd": lambda: config.compression_zstd_level,
    }
    level = levels.get(name)
    return Compression.from_name(name), level() if level else None


def _batch_size(records: memoryview, position: int) -> int:
    """Size of the whole batch at `position`, 0 if there is none (no bytes, or only the beginning of one)."""
    left = len(records) - position
    if left < LOG_OVERHEAD:
        return 0
    (length,) = _LENGTH.unpack_from(records, position + 8)
    if length < _MIN_LENGTH:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"A record batch claims a length of {length} bytes")
    if left <= MAGIC_POSITION:
        return 0
    magic = records[position + MAGIC_POSITION]
    if magic > MAGIC:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"A record batch has the unknown magic {magic}")
    size: int = length + LOG_OVERHEAD
    return size if size <= left else 0


def check_client_batch(records: memoryview, rules: AppendRules, now_ms: int) -> BatchHeader:
    """The header of the one batch that a produce request may hold for a partition; raises ApiError."""
    size = _batch_size(records, 0)
    if not size:
        raise ApiError(ErrorCode.INVALID_RECORD, "A produce request needs a record batch for each partition")
    magic = records[MAGIC_POSITION]
    if magic != MAGIC:
        raise ApiError(ErrorCode.INVALID_RECORD, f"Record batches of magic {magic} are no longer accepted")
    if size != len(records) and _batch_size(records, size):
        raise ApiError(ErrorCode.INVALID_RECORD, "A produce request may hold only one record batch per partition")
    if size < HEADER_SIZE:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"A record batch of {size} bytes is shorter than its header")
    header = read_header(records)
    if header.base_offset != 0:
        raise ApiError(ErrorCode.INVALID_RECORD, f"A new batch starts at offset 0, not at {header.base_offset}")
    _check_stored_form(records, header, rules)
    count = header.records_count
    if count <= 0 or count != header.last_offset_delta + 1:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"A batch of {count} records cannot have the last offset delta {header.last_offset_delta}",
        )
    if header.attributes & _CONTROL:
        raise ApiError(ErrorCode.INVALID_RECORD, "Clients are not allowed to write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"Producer {header.producer_id} sent the invalid sequence number {header.base_sequence}",
        )
    if not header.attributes & 7 and count * _MIN_RECORD > size - HEADER_SIZE:
        raise ApiError(ErrorCode.INVALID_RECORD, f"{count} records do not fit into a batch of {size} bytes")
    if rules.log_append_time:
        if header.attributes & _LOG_APPEND_TIME:
            raise ApiError(ErrorCode.INVALID_TIMESTAMP, "A producer must not set the timestamp type LogAppendTime")
    elif header.max_timestamp - now_ms > rules.after_max_ms:
        raise ApiError(
            ErrorCode.INVALID_TIMESTAMP,
            f"Timestamp {header.max_timestamp} is more than {rules.after_max_ms} ms after the broker's time {now_ms}",
        )
    return header


def check_internal_batches(records: memoryview, rules: AppendRules) -> list[tuple[memoryview, BatchHeader]]:
    """The batches that one of our own coordinators wrote: damage is still damage."""
    batches: list[tuple[memoryview, BatchHeader]] = []
    position = 0
    while position < len(records) or not batches:
        size = _batch_size(records, position)
        if size < HEADER_SIZE or records[position + MAGIC_POSITION] != MAGIC:
            raise ApiError(ErrorCode.INVALID_RECORD, f"No record batch at position {position}")
        batch = records[position : position + size]
        header = read_header(batch)
        _check_stored_form(batch, header, rules)
        batches.append((batch, header))
        position += size
    return batches


def check_given_batches(
    records: memoryview, log_end_offset: int, leader_epoch: int | None
) -> list[tuple[int, BatchHeader]]:
    """Position and header of each batch whose offsets are decided already; a cut batch at the end is left out.

    Sizes are not limited here: the leader accepted them, perhaps under another setting. From the Raft leader
    (`leader_epoch` given) every batch must be of its epoch.
    """
    batches: list[tuple[int, BatchHeader]] = []
    position, expected = 0, log_end_offset
    while size := _batch_size(records, position):
        if size < HEADER_SIZE or records[position + MAGIC_POSITION] != MAGIC:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"No record batch of magic 2 at position {position}")
        header = read_header(records, position)
        if not check_crc(records, position, header):
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"The batch at offset {header[0]} does not match its CRC")
        if leader_epoch is not None and header.partition_leader_epoch != leader_epoch:
            raise ApiError(
                ErrorCode.INVALID_RECORD,
                f"A batch of epoch {header.partition_leader_epoch} was appended in epoch {leader_epoch}",
            )
        if header.base_offset < expected or header.last_offset_delta < 0:
            raise UnexpectedAppendOffset(header.base_offset, expected)
        batches.append((position, header))
        expected = header.next_offset
        position += size
    return batches


def _check_stored_form(batch: memoryview, header: BatchHeader, rules: AppendRules) -> None:
    size = header.batch_length + LOG_OVERHEAD
    if size > rules.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"A record batch of {size} bytes exceeds max.message.bytes, which is {rules.max_message_bytes}",
        )
    if not check_crc(batch, 0, header):
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"The record batch does not match its CRC {header.crc}")
    if header.attributes & 7 > Compression.ZSTD:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression type {header.attributes & 7}")


def needs_rewrite(header: BatchHeader, rules: AppendRules, *, trusted: bool) -> bool:
    """Whether the batch needs more than its offset and epoch patched, or its records looked at.

    Our own coordinators are trusted to give every record of a compacted topic a key.
    """
    attributes = header.attributes
    return (
        rules.log_append_time
        or (rules.looks_at_records and not trusted)
        or attributes & _LOG_APPEND_TIME != 0
        or (rules.codec is not None and attributes & 7 != rules.codec)
    )


def rewrite(batch: memoryview, header: BatchHeader, rules: AppendRules, now_ms: int) -> tuple[memoryview, BatchHeader]:
    """The batch as the topic's settings want it stored. May patch `batch` in place or build a new one."""
    codec = rules.codec
    # Kafka never compresses a control record that was written plain: readers look into it on every path.
    recompress = codec is not None and header.compression != codec and not header.is_control
    if recompress or (rules.looks_at_records and not header.is_control):
        records = _records_or_raise(batch, header)
        if not header.is_control:
            _check_records(records, rules, now_ms)
        in_order = all(record.offset == header.base_offset + i for i, record in enumerate(records))
        if recompress or not in_order:
            rebuilt = build_batch(
                records,
                compression=codec if codec is not None else Compression(header.compression),
                level=rules.level,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                base_sequence=header.base_sequence,
                is_transactional=header.is_transactional,
                log_append_time=now_ms if rules.log_append_time else None,
            )
            header = read_header(rebuilt)
            if header.size > rules.max_message_bytes:
                raise ApiError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"Recompressed, the batch has {header.size} bytes; max.message.bytes is {rules.max_message_bytes}",
                )
            return memoryview(rebuilt), header
    set_max_timestamp_and_log_append_time(
        batch,
        now_ms if rules.log_append_time else header.max_timestamp,
        log_append_time=rules.log_append_time,
    )
    return batch, read_header(batch)


def _records_or_raise(batch: memoryview, header: BatchHeader) -> list[Record]:
    try:
        return list(iter_records(batch))
    except DecodeError as error:
        raise ApiError(ErrorCode.INVALID_RECORD, f"The records of the batch cannot be read: {error}") from None


def _check_records(records: list[Record], rules: AppendRules, now_ms: int) -> None:
    """Keys and timestamps. A bad timestamp decides the error code of the batch, as in Kafka."""
    bad_keys: list[tuple[int, str]] = []
    bad_times: list[tuple[int, str]] = []
    for index, record in enumerate(records):
        if rules.compact and record.key is None:
            bad_keys.append((index, "Compacted topic cannot accept message without key"))
        elif not rules.log_append_time and record.timestamp != NO_TIMESTAMP:
            before, after = now_ms - record.timestamp, record.timestamp - now_ms
            if before > rules.before_max_ms or after > rules.after_max_ms:
                bad_times.append((index, f"Timestamp {record.timestamp} is out of range at {now_ms}"))
    if bad_keys or bad_times:
        code = ErrorCode.INVALID_TIMESTAMP if bad_times else ErrorCode.INVALID_RECORD
        errors = sorted(bad_keys + bad_times)
        raise InvalidRecords(
            code, f"{len(errors)} of {len(records)} records were refused: {errors[0][1]}", errors[:_SHOWN_ERRORS]
        )
