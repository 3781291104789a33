"""Control batches: records that the broker writes for itself and that clients skip.

The key says what the record is (int16 version, int16 type); the value is a message of its own, encoded by
the caller. End-transaction markers carry a producer id and are transactional; the others belong to the
metadata log.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from struct import Struct

from protocol.errors import DecodeError
from protocol.records.build import BatchBuilder
from protocol.records.header import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_KEY = Struct(">hh")
CONTROL_KEY_VERSION = 0


class ControlType(IntEnum):
    """Kafka's types of control record. UNKNOWN stands for a later one, which readers step over."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


_KNOWN = {int(kind): kind for kind in ControlType}


def control_key(kind: ControlType, version: int = CONTROL_KEY_VERSION) -> bytes:
    return _KEY.pack(version, kind)


def parse_control_key(key: bytes | None) -> ControlType:
    """The type that a control record's key names. A later version's longer key starts alike."""
    if key is None or len(key) < _KEY.size:
        raise DecodeError("the key of a control record has fewer than 4 bytes")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise DecodeError(f"the key of a control record has version {version}")
    return _KNOWN.get(kind, ControlType.UNKNOWN)


def control_batch(
    kind: ControlType,
    key_version: int,
    value: bytes,
    timestamp: int,
    leader_epoch: int = NO_LEADER_EPOCH,
    base_offset: int = 0,
    *,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
) -> bytearray:
    """A batch of one control record. With a producer id it is that producer's end-transaction marker."""
    builder = BatchBuilder()
    builder.append(timestamp, control_key(kind, key_version), value)
    return builder.build(
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        is_transactional=producer_id != NO_PRODUCER_ID,
        is_control=True,
    )


def control_records_batch(
    records: Iterable[tuple[ControlType, bytes]],
    timestamp: int,
    leader_epoch: int = NO_LEADER_EPOCH,
    base_offset: int = 0,
) -> bytearray:
    """Several control records in one batch, as the head of a snapshot has them."""
    builder = BatchBuilder()
    for kind, value in records:
        builder.append(timestamp, control_key(kind), value)
    return builder.build(base_offset=base_offset, leader_epoch=leader_epoch, is_control=True)
