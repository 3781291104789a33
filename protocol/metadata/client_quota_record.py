"""ClientQuotaRecord: a record of the metadata log (type 14)."""

from __future__ import annotations

from protocol.schema import Message, Struct, array, boolean, float64, string


class EntityData(Struct):
    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


class ClientQuotaRecord(Message, key=14, versions="0", flexible="0+", strict=True):
    entity: list[EntityData] = array(EntityData, "0+")
    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")
