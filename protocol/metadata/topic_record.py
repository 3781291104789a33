"""TopicRecord: a record of the metadata log (type 2)."""

from __future__ import annotations

from protocol.schema import Message, string, uuid
from protocol.uuids import Uuid


class TopicRecord(Message, key=2, versions="0", flexible="0+", strict=True):
    name: str = string("0+")
    topic_id: Uuid = uuid("0+")
