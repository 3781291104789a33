"""RemoveDelegationTokenRecord: a record of the metadata log (type 26)."""

from __future__ import annotations

from protocol.schema import Message, string


class RemoveDelegationTokenRecord(Message, key=26, versions="0", flexible="0+", strict=True):
    token_id: str = string("0+")
