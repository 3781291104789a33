"""ConfigRecord: a record of the metadata log (type 4)."""

from __future__ import annotations

from protocol.schema import Message, int8, string


class ConfigRecord(Message, key=4, versions="0", flexible="0+", strict=True):
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")
