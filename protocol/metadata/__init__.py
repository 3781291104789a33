"""Records of the metadata log, a module each, and the frame they are stored in."""

from __future__ import annotations

import importlib
from functools import cache
from typing import cast

from protocol.errors import DecodeError
from protocol.messages import module_name
from protocol.schema import Buffer, Message
from protocol.varint import decode_uvarint, encode_uvarint

FRAME_VERSION = 1

RECORD_NAMES: dict[int, str] = {
    0: "RegisterBrokerRecord",
    1: "UnregisterBrokerRecord",
    2: "TopicRecord",
    3: "PartitionRecord",
    4: "ConfigRecord",
    5: "PartitionChangeRecord",
    7: "FenceBrokerRecord",
    8: "UnfenceBrokerRecord",
    9: "RemoveTopicRecord",
    10: "DelegationTokenRecord",
    11: "UserScramCredentialRecord",
    12: "FeatureLevelRecord",
    14: "ClientQuotaRecord",
    15: "ProducerIdsRecord",
    17: "BrokerRegistrationChangeRecord",
    18: "AccessControlEntryRecord",
    19: "RemoveAccessControlEntryRecord",
    20: "NoOpRecord",
    21: "ZkMigrationStateRecord",
    22: "RemoveUserScramCredentialRecord",
    23: "BeginTransactionRecord",
    24: "EndTransactionRecord",
    25: "AbortTransactionRecord",
    26: "RemoveDelegationTokenRecord",
    27: "RegisterControllerRecord",
    28: "ClearElrRecord",
}


@cache  # asked for every record of a replay
def record_class(record_type: int) -> type[Message]:
    name = RECORD_NAMES[record_type]
    return cast("type[Message]", getattr(importlib.import_module(f"protocol.metadata.{module_name(name)}"), name))


def encode_record(record: Message, version: int) -> bytes:
    """The value of a record in the metadata log: frame version, record type and version, then its fields."""
    frame = encode_uvarint(FRAME_VERSION) + encode_uvarint(record.API_KEY) + encode_uvarint(version)
    return frame + record.encode(version)


def decode_record(data: Buffer) -> tuple[Message, int]:
    """The record and its version. A type or version of a newer Kafka is refused, because skipping it would
    leave this node with other metadata than its peers."""
    try:
        frame, position = decode_uvarint(data, 0)
        record_type, position = decode_uvarint(data, position)
        version, position = decode_uvarint(data, position)
    except IndexError:
        raise DecodeError("a metadata record ends within its frame") from None
    if frame != FRAME_VERSION:
        raise DecodeError(f"metadata record frame version {frame} is not {FRAME_VERSION}")
    if record_type not in RECORD_NAMES:
        raise DecodeError(f"metadata record type {record_type} is unknown")
    declared = record_class(record_type)
    if version not in declared.VERSIONS:
        raise DecodeError(f"{declared.__name__} version {version} is unknown")
    record, position = declared.decode_from(data, version, position)
    if position != len(data):
        raise DecodeError(f"{declared.__name__} has {len(data) - position} bytes too many")
    return record, version
