"""FeatureLevelRecord: a record of the metadata log (type 12)."""

from __future__ import annotations

from protocol.schema import Message, int16, string


class FeatureLevelRecord(Message, key=12, versions="0", flexible="0+", strict=True):
    name: str = string("0+")
    feature_level: int = int16("0+")
