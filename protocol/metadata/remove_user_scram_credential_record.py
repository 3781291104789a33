"""RemoveUserScramCredentialRecord: a record of the metadata log (type 22)."""

from __future__ import annotations

from protocol.schema import Message, int8, string


class RemoveUserScramCredentialRecord(Message, key=22, versions="0", flexible="0+", strict=True):
    name: str = string("0+")
    mechanism: int = int8("0+")
