"""Records of a coordinator as they are stored: int16 type + key, int16 version + value (none for a tombstone)."""

from __future__ import annotations

from typing import NamedTuple

from protocol.coordinator import UnknownRecordType, decode_group_key, decode_group_value, encode_key, encode_value
from protocol.schema import Message

__all__ = ["CoordinatorRecord", "UnknownRecord", "decode_record", "encode_record", "tombstone"]

UnknownRecord = UnknownRecordType
"""Raised for a record type of a newer broker: the reader of a log skips it with a warning."""


class CoordinatorRecord(NamedTuple):
    """One change of a coordinator's state. A value of None is a tombstone: the key's state is gone."""

    key: Message
    value: Message | None
    value_version: int = 0


def tombstone(key: Message) -> CoordinatorRecord:
    return CoordinatorRecord(key, None)


def encode_record(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    value = None if record.value is None else encode_value(record.value, record.value_version)
    return encode_key(record.key), value


def decode_record(key: bytes | memoryview, value: bytes | memoryview | None) -> CoordinatorRecord:
    """UnknownRecord for a type we do not know, DecodeError for bytes no broker would have written."""
    decoded_key = decode_group_key(key)
    if value is None:
        return CoordinatorRecord(decoded_key, None)
    decoded_value, version = decode_group_value(decoded_key, value)
    return CoordinatorRecord(decoded_key, decoded_value, version)
