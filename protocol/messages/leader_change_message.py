"""LeaderChangeMessage: carried inside other messages or records."""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int16, int32, uuid
from protocol.uuids import Uuid


class Voter(Struct):
    voter_id: int = int32("0+")
    voter_directory_id: Uuid = uuid("1+")


class LeaderChangeMessage(Message, versions="0-1", flexible="0+", strict=True):
    version: int = int16("0+")
    leader_id: int = int32("0+")
    voters: list[Voter] = array(Voter, "0+")
    granting_voters: list[Voter] = array(Voter, "0+")
