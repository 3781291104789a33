"""DelegationTokenRecord: a record of the metadata log (type 10)."""

from __future__ import annotations

from protocol.schema import Message, array, int64, string


class DelegationTokenRecord(Message, key=10, versions="0", flexible="0+", strict=True):
    owner: str = string("0+")
    requester: str = string("0+")
    renewers: list[str] = array(string, "0+")
    issue_timestamp: int = int64("0+")
    max_timestamp: int = int64("0+")
    expiration_timestamp: int = int64("0+")
    token_id: str = string("0+")
