"""The core's answers as Kafka's responses, both ways; the address of the leader stands beside every answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from controller.raft.types import (
    NOBODY,
    AddVoter,
    Answer,
    Batch,
    BeginQuorumEpoch,
    Endpoint,
    EndQuorumEpoch,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    OffsetEpoch,
    PeerAnswer,
    PeerRequest,
    RemoveVoter,
    UpdateVoter,
    Vote,
)
from controller.raft_requests import only_partition
from controller.topic_names import CLUSTER_METADATA_TOPIC
from protocol.errors import ErrorCode
from protocol.messages import begin_quorum_epoch, end_quorum_epoch, fetch, fetch_snapshot, update_raft_voter, vote
from protocol.messages.add_raft_voter import AddRaftVoterResponse
from protocol.messages.begin_quorum_epoch import BeginQuorumEpochResponse
from protocol.messages.end_quorum_epoch import EndQuorumEpochResponse
from protocol.messages.fetch import FetchResponse
from protocol.messages.fetch_snapshot import FetchSnapshotResponse
from protocol.messages.remove_raft_voter import RemoveRaftVoterResponse
from protocol.messages.update_raft_voter import UpdateRaftVoterResponse
from protocol.messages.vote import VoteResponse
from protocol.schema import Message
from protocol.uuids import METADATA_TOPIC_ID

ParseBatches = Callable[[Any], tuple[Batch, ...]]
"""Records as they arrived -> batches. Raises DecodeError for what is damaged."""

N = TypeVar("N")


# Answers that this node gets.


def from_wire_answer(request: PeerRequest, response: Any, listener: str, parse: ParseBatches) -> PeerAnswer:
    """What the peer says. ``listener`` is the name under which leader addresses in answers are known."""
    if isinstance(request, (AddVoter, RemoveVoter)):
        return Answer(error_of(response.error_code), message=response.error_message)
    if isinstance(request, UpdateVoter):
        leader = response.current_leader
        return Answer(
            error_of(response.error_code),
            epoch=leader.leader_epoch,
            leader_id=leader.leader_id,
            leader_endpoints=(Endpoint(listener, leader.host, leader.port),) if leader.host else (),
        )
    error = error_of(response.error_code)
    if error is not ErrorCode.NONE:
        if isinstance(request, Fetch):
            return FetchAnswer(error, epoch=NOBODY, leader_id=NOBODY)
        if isinstance(request, FetchSnapshot):
            return FetchSnapshotAnswer(error, epoch=NOBODY, leader_id=NOBODY)
        return Answer(error, epoch=NOBODY)
    partition = only_partition(response.responses if isinstance(request, Fetch) else response.topics)
    addresses = {node.node_id: Endpoint(listener, node.host, node.port) for node in response.node_endpoints}
    error = error_of(partition.error_code)
    if isinstance(request, Fetch):
        leader = partition.current_leader
        return FetchAnswer(
            error,
            epoch=leader.leader_epoch,
            leader_id=leader.leader_id,
            high_watermark=partition.high_watermark,
            log_start_offset=partition.log_start_offset,
            batches=parse(partition.records) if partition.records is not None else (),
            diverging=_offset_epoch(partition.diverging_epoch),
            snapshot_id=_offset_epoch(partition.snapshot_id),
            leader_endpoints=_known(addresses, leader.leader_id),
        )
    if isinstance(request, FetchSnapshot):
        leader = partition.current_leader
        return FetchSnapshotAnswer(
            error,
            epoch=leader.leader_epoch,
            leader_id=leader.leader_id,
            snapshot_id=OffsetEpoch(partition.snapshot_id.end_offset, partition.snapshot_id.epoch),
            position=partition.position,
            size=partition.size,
            payload=bytes(partition.unaligned_records or b""),
            leader_endpoints=_known(addresses, leader.leader_id),
        )
    return Answer(
        error,
        epoch=partition.leader_epoch,
        leader_id=partition.leader_id,
        leader_endpoints=_known(addresses, partition.leader_id),
        granted=partition.vote_granted if isinstance(request, Vote) else False,
    )


def _offset_epoch(found: Any) -> OffsetEpoch | None:
    """Absent fields have the offset or the epoch -1."""
    return OffsetEpoch(found.end_offset, found.epoch) if found.end_offset >= 0 and found.epoch >= 0 else None


def _known(addresses: dict[int, Endpoint], leader_id: int) -> tuple[Endpoint, ...]:
    return (addresses[leader_id],) if leader_id in addresses else ()


# Answers that this node gives.


def to_wire_answer(request: PeerRequest, answer: PeerAnswer, listener: str, records: Any = None) -> Message:
    """``listener`` is the one that the request came through: the leader's address there is what the peer can use.

    ``records`` are those that the answer promises (``read_from``), or the piece of the snapshot.
    """
    if isinstance(request, Fetch):
        assert isinstance(answer, FetchAnswer)
        return _fetch_response(answer, listener, records)
    if isinstance(request, FetchSnapshot):
        assert isinstance(answer, FetchSnapshotAnswer)
        return _snapshot_response(answer, listener, records)
    assert isinstance(answer, Answer)
    if isinstance(request, AddVoter):
        return AddRaftVoterResponse(error_code=answer.error, error_message=answer.message)
    if isinstance(request, RemoveVoter):
        return RemoveRaftVoterResponse(error_code=answer.error, error_message=answer.message)
    leader = _leader_endpoint(answer.leader_endpoints, listener)
    if isinstance(request, UpdateVoter):
        return UpdateRaftVoterResponse(
            error_code=answer.error,
            current_leader=update_raft_voter.CurrentLeader(
                leader_id=answer.leader_id,
                leader_epoch=answer.epoch,
                host=leader.host if leader else "",
                port=leader.port if leader else 0,
            ),
        )
    if isinstance(request, Vote):
        return VoteResponse(
            topics=[
                vote.ResponseTopicData(
                    topic_name=CLUSTER_METADATA_TOPIC,
                    partitions=[
                        vote.ResponsePartitionData(
                            partition_index=0,
                            error_code=answer.error,
                            leader_id=answer.leader_id,
                            leader_epoch=answer.epoch,
                            vote_granted=answer.granted,
                        )
                    ],
                )
            ],
            node_endpoints=_nodes(vote.NodeEndpoint, answer.leader_id, leader),
        )
    if isinstance(request, BeginQuorumEpoch):
        return BeginQuorumEpochResponse(
            topics=[
                begin_quorum_epoch.ResponseTopicData(
                    topic_name=CLUSTER_METADATA_TOPIC,
                    partitions=[
                        begin_quorum_epoch.ResponsePartitionData(
                            partition_index=0,
                            error_code=answer.error,
                            leader_id=answer.leader_id,
                            leader_epoch=answer.epoch,
                        )
                    ],
                )
            ],
            node_endpoints=_nodes(begin_quorum_epoch.NodeEndpoint, answer.leader_id, leader),
        )
    assert isinstance(request, EndQuorumEpoch)
    return EndQuorumEpochResponse(
        topics=[
            end_quorum_epoch.ResponseTopicData(
                topic_name=CLUSTER_METADATA_TOPIC,
                partitions=[
                    end_quorum_epoch.ResponsePartitionData(
                        partition_index=0,
                        error_code=answer.error,
                        leader_id=answer.leader_id,
                        leader_epoch=answer.epoch,
                    )
                ],
            )
        ],
        node_endpoints=_nodes(end_quorum_epoch.NodeEndpoint, answer.leader_id, leader),
    )


def _fetch_response(answer: FetchAnswer, listener: str, records: Any) -> FetchResponse:
    partition = fetch.PartitionData(
        partition_index=0,
        error_code=answer.error,
        high_watermark=answer.high_watermark,
        log_start_offset=answer.log_start_offset,
        current_leader=fetch.LeaderIdAndEpoch(leader_id=answer.leader_id, leader_epoch=answer.epoch),
        aborted_transactions=None,
        records=b"" if records is None else records,
    )
    if answer.diverging is not None:
        partition.diverging_epoch = fetch.EpochEndOffset(
            epoch=answer.diverging.epoch, end_offset=answer.diverging.offset
        )
    if answer.snapshot_id is not None:
        partition.snapshot_id = fetch.SnapshotId(end_offset=answer.snapshot_id.offset, epoch=answer.snapshot_id.epoch)
    topic = fetch.FetchableTopicResponse(
        topic=CLUSTER_METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
    )
    leader = _leader_endpoint(answer.leader_endpoints, listener)
    return FetchResponse(responses=[topic], node_endpoints=_nodes(fetch.NodeEndpoint, answer.leader_id, leader))


def _snapshot_response(answer: FetchSnapshotAnswer, listener: str, records: Any) -> FetchSnapshotResponse:
    leader = _leader_endpoint(answer.leader_endpoints, listener)
    return FetchSnapshotResponse(
        topics=[
            fetch_snapshot.ResponseTopicSnapshot(
                name=CLUSTER_METADATA_TOPIC,
                partitions=[
                    fetch_snapshot.ResponsePartitionSnapshot(
                        index=0,
                        error_code=answer.error,
                        snapshot_id=fetch_snapshot.ResponseSnapshotId(
                            end_offset=answer.snapshot_id.offset, epoch=answer.snapshot_id.epoch
                        ),
                        current_leader=fetch_snapshot.LeaderIdAndEpoch(
                            leader_id=answer.leader_id, leader_epoch=answer.epoch
                        ),
                        size=answer.size,
                        position=answer.position,
                        unaligned_records=b"" if records is None else records,
                    )
                ],
            )
        ],
        node_endpoints=_nodes(fetch_snapshot.NodeEndpoint, answer.leader_id, leader),
    )


def _leader_endpoint(endpoints: tuple[Endpoint, ...], listener: str) -> Endpoint | None:
    return next((one for one in endpoints if one.listener == listener), endpoints[0] if endpoints else None)


def _nodes(make: Callable[..., N], leader_id: int, leader: Endpoint | None) -> list[N]:
    return [] if leader is None or leader_id < 0 else [make(node_id=leader_id, host=leader.host, port=leader.port)]


def error_of(code: int) -> ErrorCode:
    """A code of a later version counts as the one for the unknown."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
