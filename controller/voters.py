"""Voter sets in their three forms: the core's, the record in the log (KIP-853), and the static setting."""

from __future__ import annotations

from collections.abc import Sequence

from config.broker import BrokerConfig
from controller import image
from controller.features import KRAFT_VERSION
from controller.raft.types import Endpoint, ReplicaKey, Voter, VoterSet
from protocol.messages import voters_record
from protocol.messages.voters_record import KRaftVersionFeature, VotersRecord


def to_record(voters: VoterSet) -> VotersRecord:
    return VotersRecord(
        version=0,
        voters=[
            voters_record.Voter(
                voter_id=voter.key.id,
                voter_directory_id=voter.key.directory_id,
                endpoints=[
                    voters_record.Endpoint(name=one.listener, host=one.host, port=one.port) for one in voter.endpoints
                ],
                k_raft_version_feature=KRaftVersionFeature(
                    min_supported_version=voter.min_kraft_version, max_supported_version=voter.max_kraft_version
                ),
            )
            for voter in voters
        ],
    )


def from_record(record: VotersRecord) -> VoterSet:
    return tuple(
        sorted(
            Voter(
                ReplicaKey(voter.voter_id, voter.voter_directory_id),
                tuple(Endpoint(one.name, one.host, one.port) for one in voter.endpoints),
                voter.k_raft_version_feature.min_supported_version,
                voter.k_raft_version_feature.max_supported_version,
            )
            for voter in record.voters
        )
    )


def static_voters(config: BrokerConfig) -> VoterSet:
    """``controller.quorum.voters``: addresses of the first controller listener, directories unknown."""
    name = config.controller_listener_names[0] if config.controller_listener_names else "CONTROLLER"
    return tuple(
        sorted(
            Voter(ReplicaKey(voter.id), (Endpoint(name, voter.host, voter.port),), 0, KRAFT_VERSION)
            for voter in config.controller_quorum_voters
        )
    )


def raft_endpoints(endpoints: Sequence[image.Endpoint]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(one.name, one.host, one.port) for one in endpoints)
