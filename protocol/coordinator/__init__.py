"""Records of the internal topics, a module each with its key and value: what coordinators store.

A stored key begins with the record's type as int16, a stored value with its version. Group records live in
`__consumer_offsets`, the transaction log in `__transaction_state`.
"""

from __future__ import annotations

import importlib
import struct
from typing import cast

from protocol.errors import DecodeError
from protocol.messages import module_name
from protocol.schema import Buffer, Message

GROUP_RECORD_NAMES: dict[int, str] = {
    0: "LegacyOffsetCommit",
    1: "OffsetCommit",
    2: "GroupMetadata",
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
    10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata",
    12: "ShareGroupTargetAssignmentMetadata",
    13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment",
    15: "ShareGroupStatePartitionMetadata",
    16: "ConsumerGroupRegularExpression",
    17: "StreamsGroupMetadata",
    19: "StreamsGroupMemberMetadata",
    20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember",
    22: "StreamsGroupCurrentMemberAssignment",
    23: "StreamsGroupTopology",
}

KEY_VERSION = 0
_PREFIX = struct.Struct(">h")


class UnknownRecordType(DecodeError):
    """A record of a newer broker. Readers skip it with a warning, as Apache Kafka does."""


def encode_key(key: Message) -> bytes:
    return _PREFIX.pack(key.API_KEY) + key.encode(KEY_VERSION)


def encode_value(value: Message, version: int) -> bytes:
    return _PREFIX.pack(version) + value.encode(version)


def decode_group_key(data: Buffer) -> Message:
    record_type = _prefix(data)
    name = GROUP_RECORD_NAMES.get(record_type)
    if name is None:
        raise UnknownRecordType(f"group record type {record_type} is unknown")
    return _class(name, "Key").decode(data, KEY_VERSION, _PREFIX.size)


def decode_group_value(key: Message, data: Buffer) -> tuple[Message, int]:
    """The value and the version it was stored in."""
    version = _prefix(data)
    declared = _class(GROUP_RECORD_NAMES[key.API_KEY], "Value")
    if version not in declared.VERSIONS:
        raise DecodeError(f"{declared.__name__} version {version} is unknown")
    return declared.decode(data, version, _PREFIX.size), version


def _prefix(data: Buffer) -> int:
    if len(data) < _PREFIX.size:
        raise DecodeError("a coordinator's record is shorter than its prefix")
    return int(_PREFIX.unpack_from(data)[0])


def _class(name: str, suffix: str) -> type[Message]:
    module = importlib.import_module(f"protocol.coordinator.{module_name(name)}")
    return cast("type[Message]", getattr(module, name + suffix))
