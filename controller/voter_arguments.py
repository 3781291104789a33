"""Voters as a person writes them: ``1@host:9093:directory-id``, separated by commas (KIP-853)."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import NamedTuple

from controller.features import KRAFT_VERSION
from protocol.messages import voters_record as messages
from protocol.uuids import Uuid


class DynamicVoter(NamedTuple):
    node_id: int
    host: str
    port: int
    directory_id: Uuid


def parse_voters(text: str) -> dict[int, DynamicVoter]:
    """By id, in the order of the ids. Raises ValueError with Kafka's sentence."""
    found: dict[int, DynamicVoter] = {}
    for part in filter(None, text.strip().split(",")):
        voter = parse_voter(part)
        if voter.node_id in found:
            raise ValueError(f"Node id {voter.node_id} was specified more than once.")
        found[voter.node_id] = voter
    if not found:
        raise ValueError("No voters given.")
    return dict(sorted(found.items()))


def parse_voter(text: str) -> DynamicVoter:
    text = text.strip()
    if text.startswith("@"):
        raise ValueError("Invalid @ at beginning of dynamic voter string.")
    id_text, at, rest = text.partition("@")
    if not at:
        raise ValueError("No @ found in dynamic voter string.")
    node_id = _number(id_text, "node id")
    if node_id < 0:
        raise ValueError(f"Invalid negative node id {node_id} in dynamic voter string.")
    if not rest:
        raise ValueError("No hostname found after node id.")
    host, rest = _host(rest)
    if not rest.startswith(":"):
        raise ValueError("Port section must start with a colon.")
    port_text, colon, directory = rest[1:].partition(":")
    if not colon:
        raise ValueError("No colon following port could be found.")
    port = _number(port_text, "port")
    if not 0 <= port <= 65535:
        raise ValueError(f"Invalid port {port} in dynamic voter string.")
    try:
        return DynamicVoter(node_id, host, port, Uuid.parse(directory))
    except ValueError:
        raise ValueError("Failed to parse directory ID in dynamic voter string.") from None


def _host(text: str) -> tuple[str, str]:
    """(host, what follows it); an IPv6 address stands in brackets."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket:
            raise ValueError("Hostname began with left bracket, but no right bracket was found.")
        return host, rest
    host, colon, rest = text.partition(":")
    if not colon:
        raise ValueError("No colon following hostname could be found.")
    return host, f":{rest}"


def _number(text: str, what: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"Failed to parse {what} in dynamic voter string.") from None


def voters_record(voters: Mapping[int, DynamicVoter], listener: str) -> messages.VotersRecord:
    return messages.VotersRecord(
        version=0,
        voters=[
            messages.Voter(
                voter_id=voter.node_id,
                voter_directory_id=voter.directory_id,
                endpoints=[messages.Endpoint(name=listener, host=_as_java_writes(voter.host), port=voter.port)],
                k_raft_version_feature=messages.KRaftVersionFeature(
                    min_supported_version=0, max_supported_version=KRAFT_VERSION
                ),
            )
            for voter in voters.values()
        ],
    )


def _as_java_writes(host: str) -> str:
    """An IPv6 address in full, without leading zeros; names and IPv4 addresses stay as they are."""
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))
