"""ZkMigrationStateRecord: a record of the metadata log (type 21)."""

from __future__ import annotations

from protocol.schema import Message, int8


class ZkMigrationStateRecord(Message, key=21, versions="0", flexible="0+", strict=True):
    zk_migration_state: int = int8("0+")
