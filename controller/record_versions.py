"""Which version of a record may be written at a metadata.version.

A cluster whose metadata.version is not the latest has nodes that cannot read newer records, so the feature
level decides and not what this node knows. The levels are Kafka's (7 is 3.3-IV3, the oldest that 4.3 starts on).
"""

from __future__ import annotations

from typing import Any, Final

from protocol.schema import Message

MIN_METADATA_VERSION: Final = 7  # 3.3-IV3
LATEST_METADATA_VERSION: Final = 30  # 4.3-IV0

SCRAM_LEVEL: Final = 11  # 3.5-IV2
NO_EPOCH_BUMP_LEVEL: Final = 12  # 3.6-IV0: a smaller ISR alone no longer needs a new leader epoch
TRANSACTIONS_LEVEL: Final = 13  # 3.6-IV1
DELEGATION_TOKENS_LEVEL: Final = 14  # 3.6-IV2
CONTROLLER_REGISTRATION_LEVEL: Final = 15  # 3.7-IV0
DIRECTORY_ASSIGNMENT_LEVEL: Final = 17  # 3.7-IV2
ELR_LEVEL: Final = 23  # 4.0-IV1
CORDONED_DIRECTORIES_LEVEL: Final = 30  # 4.3-IV0


def record_version(record: Message, metadata_version: int) -> int:
    key = record.API_KEY
    if key in (3, 5):  # PartitionRecord, PartitionChangeRecord
        if metadata_version >= ELR_LEVEL:
            return 2
        return 1 if metadata_version >= DIRECTORY_ASSIGNMENT_LEVEL else 0
    if key == 0:
        return register_broker_version(metadata_version)
    if key == 17:
        return _registration_change_version(record)
    return 0


def register_broker_version(metadata_version: int) -> int:
    if metadata_version >= CORDONED_DIRECTORIES_LEVEL:
        return 4
    if metadata_version >= DIRECTORY_ASSIGNMENT_LEVEL:
        return 3
    return 2 if metadata_version >= 8 else 1


def _registration_change_version(record: Any) -> int:
    """The lowest that can carry the change, as Kafka writes it."""
    if record.cordoned_log_dirs is not None:
        return 3
    if record.log_dirs:
        return 2
    return 1 if record.in_controlled_shutdown else 0
