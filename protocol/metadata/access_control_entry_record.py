"""AccessControlEntryRecord: a record of the metadata log (type 18)."""

from __future__ import annotations

from protocol.schema import Message, int8, string, uuid
from protocol.uuids import Uuid


class AccessControlEntryRecord(Message, key=18, versions="0", flexible="0+", strict=True):
    id: Uuid = uuid("0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("0+")
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")
