"""VotersRecord: carried inside other messages or records."""

from __future__ import annotations

from protocol.schema import Message, Struct, array, int16, int32, nested, string, uint16, uuid
from protocol.uuids import Uuid


class Endpoint(Struct):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")


class KRaftVersionFeature(Struct):
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class Voter(Struct):
    voter_id: int = int32("0+")
    voter_directory_id: Uuid = uuid("0+")
    endpoints: list[Endpoint] = array(Endpoint, "0+")
    k_raft_version_feature: KRaftVersionFeature = nested(KRaftVersionFeature, "0+")


class VotersRecord(Message, versions="0", flexible="0+", strict=True):
    version: int = int16("0+")
    voters: list[Voter] = array(Voter, "0+")
