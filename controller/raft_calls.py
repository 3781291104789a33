"""Calls to peers of the quorum: the core's request on the wire, the peer's answer back in the core's words."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Protocol

from config.broker import BrokerConfig
from controller.control_records import parse_batches
from controller.image import KRAFT_VERSION_FEATURE
from controller.raft.types import (
    AddVoter,
    Answer,
    Answered,
    Failed,
    Fetch,
    FetchSnapshot,
    PeerAnswer,
    PeerRequest,
    ProbeVersions,
    RemoveVoter,
    VersionsAnswer,
    Vote,
)
from controller.raft_answers import error_of, from_wire_answer
from controller.raft_requests import UnusableMessage, to_wire
from protocol.errors import DecodeError, ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol.schema import Message

_log = logging.getLogger(__name__)

_PROBE = ApiVersionsRequest(client_software_name="barnabas", client_software_version="0.1.0")


class PeerUnavailable(Exception):
    """No answer: no connection, a lost one, or a time-out."""


class PeerGone(PeerUnavailable):
    """Nobody listens at the peer's address: its process is not there."""


class PeerTooOld(PeerUnavailable):
    """The peer is there, but cannot be asked this."""


class Peers(Protocol):
    """The way to other nodes. Connections are kept; an address that does not answer is left alone for a while."""

    async def call(self, host: str, port: int, request: Message, timeout_ms: float) -> Message:
        """Raises PeerUnavailable."""


class NoPeers:
    """Of a quorum of one, and of tests without a network."""

    async def call(self, host: str, port: int, request: Message, timeout_ms: float) -> Message:
        raise PeerUnavailable(f"this node has no way to {host}:{port}")


async def call_peer(
    peers: Peers,
    peer: int,
    address: tuple[str, int] | None,
    request: PeerRequest,
    *,
    config: BrokerConfig,
    cluster_id: str,
) -> Answered | Failed:
    """What the core hears of its request. A log line only for what a person should look at."""
    if address is None:
        return Failed(peer, request)
    try:
        answer = await _call(peers, *address, request, config, cluster_id)
    except PeerGone:
        return Failed(peer, request, refused=True)
    return Failed(peer, request) if answer is None else Answered(peer, request, answer)


async def _call(
    peers: Peers, host: str, port: int, request: PeerRequest, config: BrokerConfig, cluster_id: str
) -> PeerAnswer | None:
    timeout_ms = config.controller_quorum_request_timeout_ms
    try:
        if isinstance(request, ProbeVersions):
            return _supported(await peers.call(host, port, _PROBE, timeout_ms))
        message = to_wire(
            request,
            cluster_id,
            fetch_max_bytes=config.controller_quorum_fetch_max_bytes,
            snapshot_max_bytes=config.controller_quorum_fetch_snapshot_max_bytes,
        )
        if isinstance(request, Fetch):
            timeout_ms = max(timeout_ms, 2 * request.max_wait_ms)
        elif isinstance(request, (AddVoter, RemoveVoter)):
            timeout_ms = max(timeout_ms, request.timeout_ms)
        response = await peers.call(host, port, message, timeout_ms)
        listener = config.controller_listener_names[0] if config.controller_listener_names else "CONTROLLER"
        answer = from_wire_answer(request, response, listener, parse_batches)
    except PeerTooOld as error:
        if isinstance(request, Vote):
            return Answer(ErrorCode.UNSUPPORTED_VERSION)
        _warn_once(str(error))
        return None
    except PeerGone:
        raise
    except PeerUnavailable as error:
        _log.debug("%s of %s:%d failed: %s", type(request).__name__, host, port, error)
        return None
    except (UnusableMessage, DecodeError) as error:
        _warn_once(f"The answer of {host}:{port} to {type(request).__name__} is useless: {error}")
        return None
    if answer.error is ErrorCode.INCONSISTENT_CLUSTER_ID and isinstance(request, (Fetch, FetchSnapshot, Vote)):
        _warn_once(f"The node at {host}:{port} belongs to another cluster than this one, {cluster_id}")
    return answer


@lru_cache(maxsize=100)
def _warn_once(text: str) -> None:
    """The core tries again many times a second; a person needs to read it once."""
    _log.warning("%s", text)


def _supported(response: Message) -> VersionsAnswer:
    assert isinstance(response, ApiVersionsResponse)
    for feature in response.supported_features:
        if feature.name == KRAFT_VERSION_FEATURE:
            return VersionsAnswer(error_of(response.error_code), feature.min_version, feature.max_version)
    return VersionsAnswer(error_of(response.error_code))
