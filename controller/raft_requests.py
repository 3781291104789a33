"""The core's requests as Kafka's RPCs, both ways.

The core thinks in replicas, offsets and epochs; the wire has topics and partitions, of which the quorum has exactly
one. A request that is not about that one partition, or of another cluster, is refused here and never reaches the core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from controller.raft.types import (
    AddVoter,
    BeginQuorumEpoch,
    Endpoint,
    EndQuorumEpoch,
    Fetch,
    FetchSnapshot,
    OffsetEpoch,
    PeerRequest,
    RemoveVoter,
    ReplicaKey,
    UpdateVoter,
    Vote,
    Voter,
)
from controller.topic_names import CLUSTER_METADATA_TOPIC
from protocol.errors import ErrorCode
from protocol.messages import (
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    update_raft_voter,
    vote,
)
from protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from protocol.messages.vote import VoteRequest, VoteResponse
from protocol.schema import Message
from protocol.uuids import METADATA_TOPIC_ID


class Refused(Exception):
    """A request that never reaches the core; carries the response."""

    def __init__(self, response: Message) -> None:
        self.response = response


class UnusableMessage(Exception):
    """Not about the one partition of the metadata log."""


# Requests that this node sends.


def to_wire(request: PeerRequest, cluster_id: str, *, fetch_max_bytes: int, snapshot_max_bytes: int) -> Message:
    if isinstance(request, Vote):
        return VoteRequest(
            cluster_id=cluster_id,
            voter_id=request.voter.id,
            topics=[
                vote.TopicData(
                    topic_name=CLUSTER_METADATA_TOPIC,
                    partitions=[
                        vote.PartitionData(
                            partition_index=0,
                            replica_epoch=request.epoch,
                            replica_id=request.candidate.id,
                            replica_directory_id=request.candidate.directory_id,
                            voter_directory_id=request.voter.directory_id,
                            last_offset_epoch=request.last.epoch,
                            last_offset=request.last.offset,
                            pre_vote=request.pre_vote,
                        )
                    ],
                )
            ],
        )
    if isinstance(request, BeginQuorumEpoch):
        return BeginQuorumEpochRequest(
            cluster_id=cluster_id,
            voter_id=request.voter.id,
            topics=[
                begin_quorum_epoch.TopicData(
                    topic_name=CLUSTER_METADATA_TOPIC,
                    partitions=[
                        begin_quorum_epoch.PartitionData(
                            partition_index=0,
                            voter_directory_id=request.voter.directory_id,
                            leader_id=request.leader_id,
                            leader_epoch=request.epoch,
                        )
                    ],
                )
            ],
            leader_endpoints=[
                begin_quorum_epoch.LeaderEndpoint(name=e.listener, host=e.host, port=e.port)
                for e in request.leader_endpoints
            ],
        )
    if isinstance(request, EndQuorumEpoch):
        return EndQuorumEpochRequest(
            cluster_id=cluster_id,
            topics=[
                end_quorum_epoch.TopicData(
                    topic_name=CLUSTER_METADATA_TOPIC,
                    partitions=[
                        end_quorum_epoch.PartitionData(
                            partition_index=0,
                            leader_id=request.leader.id,
                            leader_epoch=request.epoch,
                            preferred_successors=[key.id for key in request.preferred],
                            preferred_candidates=[
                                end_quorum_epoch.ReplicaInfo(
                                    candidate_id=key.id, candidate_directory_id=key.directory_id
                                )
                                for key in request.preferred
                            ],
                        )
                    ],
                )
            ],
            leader_endpoints=[
                end_quorum_epoch.LeaderEndpoint(name=e.listener, host=e.host, port=e.port)
                for e in request.leader_endpoints
            ],
        )
    if isinstance(request, Fetch):
        return FetchRequest(
            cluster_id=cluster_id,
            replica_state=fetch.ReplicaState(replica_id=request.replica.id),
            max_wait_ms=request.max_wait_ms,
            max_bytes=fetch_max_bytes,
            topics=[
                fetch.FetchTopic(
                    topic=CLUSTER_METADATA_TOPIC,
                    topic_id=METADATA_TOPIC_ID,
                    partitions=[
                        fetch.FetchPartition(
                            partition=0,
                            current_leader_epoch=request.epoch,
                            fetch_offset=request.fetch_offset,
                            last_fetched_epoch=request.last_fetched_epoch,
                            partition_max_bytes=0,
                            replica_directory_id=request.replica.directory_id,
                            high_watermark=request.high_watermark,
                        )
                    ],
                )
            ],
        )
    if isinstance(request, FetchSnapshot):
        return FetchSnapshotRequest(
            cluster_id=cluster_id,
            replica_id=request.replica.id,
            max_bytes=snapshot_max_bytes,
            topics=[
                fetch_snapshot.TopicSnapshot(
                    name=CLUSTER_METADATA_TOPIC,
                    partitions=[
                        fetch_snapshot.PartitionSnapshot(
                            partition=0,
                            current_leader_epoch=request.epoch,
                            snapshot_id=fetch_snapshot.SnapshotId(
                                end_offset=request.snapshot_id.offset, epoch=request.snapshot_id.epoch
                            ),
                            position=request.position,
                            replica_directory_id=request.replica.directory_id,
                        )
                    ],
                )
            ],
        )
    if isinstance(request, UpdateVoter):
        return UpdateRaftVoterRequest(
            cluster_id=cluster_id,
            current_leader_epoch=request.epoch,
            voter_id=request.voter.key.id,
            voter_directory_id=request.voter.key.directory_id,
            listeners=[
                update_raft_voter.Listener(name=e.listener, host=e.host, port=e.port) for e in request.voter.endpoints
            ],
            k_raft_version_feature=update_raft_voter.KRaftVersionFeature(
                min_supported_version=request.voter.min_kraft_version,
                max_supported_version=request.voter.max_kraft_version,
            ),
        )
    if isinstance(request, AddVoter):
        return AddRaftVoterRequest(
            cluster_id=cluster_id,
            timeout_ms=request.timeout_ms,
            voter_id=request.voter.key.id,
            voter_directory_id=request.voter.key.directory_id,
            listeners=[Listener(name=e.listener, host=e.host, port=e.port) for e in request.voter.endpoints],
            ack_when_committed=request.ack_when_committed,
        )
    assert isinstance(request, RemoveVoter)
    return RemoveRaftVoterRequest(
        cluster_id=cluster_id, voter_id=request.key.id, voter_directory_id=request.key.directory_id
    )


# Requests that this node gets.


def from_wire(request: Any, cluster_id: str) -> PeerRequest:
    """What the core shall decide. Raises Refused for another cluster's request and for one about another partition."""
    make = _FROM_WIRE[type(request)]
    given: str | None = request.cluster_id
    if given is not None and given != cluster_id:
        raise Refused(refusal(request, ErrorCode.INCONSISTENT_CLUSTER_ID))
    try:
        return make(request)
    except UnusableMessage:
        raise Refused(refusal(request, ErrorCode.INVALID_REQUEST)) from None


def refusal(request: Message, error: ErrorCode) -> Message:
    return _RESPONSES[type(request)](error_code=error)


def only_partition(topics: Any) -> Any:
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise UnusableMessage("it is not about the one partition of the metadata log")
    return topics[0].partitions[0]


def _partition_of(request: Any) -> Any:
    topics = request.topics
    partition = only_partition(topics)
    topic = topics[0]
    if isinstance(request, FetchRequest):
        named = topic.topic == CLUSTER_METADATA_TOPIC or topic.topic_id == METADATA_TOPIC_ID
        index = partition.partition
    elif isinstance(request, FetchSnapshotRequest):
        named, index = topic.name == CLUSTER_METADATA_TOPIC, partition.partition
    else:
        named, index = topic.topic_name == CLUSTER_METADATA_TOPIC, partition.partition_index
    if not named or index != 0:
        raise UnusableMessage("not the metadata log")
    return partition


def _vote(request: VoteRequest) -> PeerRequest:
    found = _partition_of(request)
    return Vote(
        epoch=found.replica_epoch,
        candidate=ReplicaKey(found.replica_id, found.replica_directory_id),
        voter=ReplicaKey(request.voter_id, found.voter_directory_id),
        last=OffsetEpoch(found.last_offset, found.last_offset_epoch),
        pre_vote=found.pre_vote,
    )


def _begin(request: BeginQuorumEpochRequest) -> PeerRequest:
    found = _partition_of(request)
    return BeginQuorumEpoch(
        epoch=found.leader_epoch,
        leader_id=found.leader_id,
        voter=ReplicaKey(request.voter_id, found.voter_directory_id),
        leader_endpoints=_endpoints(request.leader_endpoints),
    )


def _end(request: EndQuorumEpochRequest) -> PeerRequest:
    found = _partition_of(request)
    preferred = [ReplicaKey(one.candidate_id, one.candidate_directory_id) for one in found.preferred_candidates]
    return EndQuorumEpoch(
        epoch=found.leader_epoch,
        leader=ReplicaKey(found.leader_id),
        preferred=tuple(preferred or map(ReplicaKey, found.preferred_successors)),
        leader_endpoints=_endpoints(request.leader_endpoints),
    )


def _fetch(request: FetchRequest) -> PeerRequest:
    found = _partition_of(request)
    replica_id = request.replica_state.replica_id if request.replica_state.replica_id >= 0 else request.replica_id
    return Fetch(
        epoch=found.current_leader_epoch,
        replica=ReplicaKey(replica_id, found.replica_directory_id),
        fetch_offset=found.fetch_offset,
        last_fetched_epoch=found.last_fetched_epoch,
        max_wait_ms=request.max_wait_ms,
        high_watermark=found.high_watermark,
    )


def _fetch_snapshot(request: FetchSnapshotRequest) -> PeerRequest:
    found = _partition_of(request)
    return FetchSnapshot(
        epoch=found.current_leader_epoch,
        replica=ReplicaKey(request.replica_id, found.replica_directory_id),
        snapshot_id=OffsetEpoch(found.snapshot_id.end_offset, found.snapshot_id.epoch),
        position=found.position,
    )


def _update(request: UpdateRaftVoterRequest) -> PeerRequest:
    feature = request.k_raft_version_feature
    key = ReplicaKey(request.voter_id, request.voter_directory_id)
    return UpdateVoter(
        epoch=request.current_leader_epoch,
        voter=Voter(key, _endpoints(request.listeners), feature.min_supported_version, feature.max_supported_version),
    )


def _add(request: AddRaftVoterRequest) -> PeerRequest:
    return AddVoter(
        voter=Voter(ReplicaKey(request.voter_id, request.voter_directory_id), _endpoints(request.listeners)),
        timeout_ms=request.timeout_ms,
        ack_when_committed=request.ack_when_committed,
    )


def _remove(request: RemoveRaftVoterRequest) -> PeerRequest:
    return RemoveVoter(ReplicaKey(request.voter_id, request.voter_directory_id))


def _endpoints(listed: Any) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(one.name, one.host, one.port) for one in listed)


_FROM_WIRE: Final[dict[type[Message], Callable[[Any], PeerRequest]]] = {
    VoteRequest: _vote,
    BeginQuorumEpochRequest: _begin,
    EndQuorumEpochRequest: _end,
    FetchRequest: _fetch,
    FetchSnapshotRequest: _fetch_snapshot,
    UpdateRaftVoterRequest: _update,
    AddRaftVoterRequest: _add,
    RemoveRaftVoterRequest: _remove,
}
_RESPONSES: Final[dict[type[Message], Callable[..., Message]]] = {
    VoteRequest: VoteResponse,
    BeginQuorumEpochRequest: BeginQuorumEpochResponse,
    EndQuorumEpochRequest: EndQuorumEpochResponse,
    FetchRequest: FetchResponse,
    FetchSnapshotRequest: FetchSnapshotResponse,
    UpdateRaftVoterRequest: UpdateRaftVoterResponse,
    AddRaftVoterRequest: AddRaftVoterResponse,
    RemoveRaftVoterRequest: RemoveRaftVoterResponse,
}
