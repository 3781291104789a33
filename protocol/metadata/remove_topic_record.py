"""RemoveTopicRecord: a record of the metadata log (type 9)."""

from __future__ import annotations

from protocol.schema import Message, uuid
from protocol.uuids import Uuid


class RemoveTopicRecord(Message, key=9, versions="0", flexible="0+", strict=True):
    topic_id: Uuid = uuid("0+")
