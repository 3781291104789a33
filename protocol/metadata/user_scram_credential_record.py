"""UserScramCredentialRecord: a record of the metadata log (type 11)."""

from __future__ import annotations

from protocol.schema import Message, int8, int32, raw, string


class UserScramCredentialRecord(Message, key=11, versions="0", flexible="0+", strict=True):
    name: str = string("0+")
    mechanism: int = int8("0+")
    salt: bytes = raw("0+")
    stored_key: bytes = raw("0+")
    server_key: bytes = raw("0+")
    iterations: int = int32("0+")
