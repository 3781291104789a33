"""RemoveAccessControlEntryRecord: a record of the metadata log (type 19)."""

from __future__ import annotations

from protocol.schema import Message, uuid
from protocol.uuids import Uuid


class RemoveAccessControlEntryRecord(Message, key=19, versions="0", flexible="0+", strict=True):
    id: Uuid = uuid("0+")
