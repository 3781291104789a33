"""Record batches, magic 2: headers without touching records, records when asked, building, control batches.

Pure bytes in, values out; no IO. `header` is the hot path (per batch), everything else runs only where a
topic's setting demands it or where the broker writes records of its own.
"""

from protocol.records.build import BatchBuilder, RecordLike, build_batch
from protocol.records.control import (
    CONTROL_KEY_VERSION,
    ControlType,
    control_batch,
    control_key,
    control_records_batch,
    parse_control_key,
)
from protocol.records.header import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    check_crc,
    compute_crc,
    iter_batches,
    read_header,
    set_base_offset,
    set_leader_epoch,
    set_max_timestamp_and_log_append_time,
)
from protocol.records.record import (
    MAX_DECOMPRESSED,
    Record,
    RecordHeader,
    first_record_at_or_after,
    has_null_keys,
    iter_keys,
    iter_records,
)

__all__ = [
    "CONTROL_KEY_VERSION",
    "HEADER_SIZE",
    "LOG_OVERHEAD",
    "MAGIC",
    "MAGIC_POSITION",
    "MAX_DECOMPRESSED",
    "NO_LEADER_EPOCH",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "BatchBuilder",
    "BatchHeader",
    "ControlType",
    "Record",
    "RecordHeader",
    "RecordLike",
    "build_batch",
    "check_crc",
    "compute_crc",
    "control_batch",
    "control_key",
    "control_records_batch",
    "first_record_at_or_after",
    "has_null_keys",
    "iter_batches",
    "iter_keys",
    "iter_records",
    "parse_control_key",
    "read_header",
    "set_base_offset",
    "set_leader_epoch",
    "set_max_timestamp_and_log_append_time",
]
