"""The addresses a node announces for itself in its registrations and as a voter."""

from __future__ import annotations

import socket
from typing import Final

from config.addresses import Listener
from config.broker import BrokerConfig
from controller.features import KRAFT_VERSION
from controller.image import Endpoint
from protocol.messages import voters_record
from protocol.messages.voters_record import KRaftVersionFeature, Voter, VotersRecord
from protocol.uuids import Uuid

SECURITY_PROTOCOL_IDS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_WILDCARDS: Final = ("", "0.0.0.0", "::")


def broker_endpoints(config: BrokerConfig) -> list[Endpoint]:
    """What clients and other brokers are told: advertised, or else what is listened on."""
    advertised = {listener.name: listener for listener in config.advertised_listeners}
    return [
        _endpoint(advertised.get(listener.name, listener))
        for listener in config.listeners
        if listener.name not in config.controller_listener_names
    ]


def controller_endpoints(config: BrokerConfig) -> list[Endpoint]:
    advertised = {listener.name: listener for listener in config.advertised_listeners}
    listened = {listener.name: listener for listener in config.listeners}
    found = (advertised.get(name) or listened.get(name) for name in config.controller_listener_names)
    return [_endpoint(listener) for listener in found if listener is not None]


def _endpoint(listener: Listener) -> Endpoint:
    host = listener.host or ""
    if host in _WILDCARDS:  # no address one could connect to: this machine's name is, as in Kafka
        host = socket.gethostname()
    return Endpoint(listener.name, host, listener.port, SECURITY_PROTOCOL_IDS[listener.protocol])


def sole_voter(node_id: int, directory_id: Uuid, endpoints: list[Endpoint]) -> VotersRecord:
    """The voter set of a quorum of one."""
    return VotersRecord(
        version=0,
        voters=[
            Voter(
                voter_id=node_id,
                voter_directory_id=directory_id,
                endpoints=[
                    voters_record.Endpoint(name=endpoint.name, host=endpoint.host, port=endpoint.port)
                    for endpoint in endpoints
                ],
                k_raft_version_feature=KRaftVersionFeature(
                    min_supported_version=0, max_supported_version=KRAFT_VERSION
                ),
            )
        ],
    )
