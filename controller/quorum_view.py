"""DescribeQuorum: the leader, its epoch and high watermark, and how far every voter and observer is."""

from __future__ import annotations

from collections.abc import Iterable

from controller.driver import RaftDriver
from controller.raft.node import ReplicaState as CoreState
from controller.topic_names import CLUSTER_METADATA_TOPIC
from protocol.errors import ErrorCode
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)


def describe_quorum(request: DescribeQuorumRequest, raft: RaftDriver, wall_ms: int) -> DescribeQuorumResponse:
    """There is one partition to describe; a request for any other gets UNKNOWN_TOPIC_OR_PARTITION throughout."""
    asked = [(topic.topic_name, [p.partition_index for p in topic.partitions]) for topic in request.topics]
    if asked != [(CLUSTER_METADATA_TOPIC, [0])]:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return DescribeQuorumResponse(
            topics=[
                ResponseTopicData(
                    topic_name=name,
                    partitions=[
                        ResponsePartitionData(partition_index=index, error_code=code, error_message=None)
                        for index in indexes
                    ],
                )
                for name, indexes in asked
            ]
        )
    node, now_ms = raft.node, raft.now_ms()
    partition = ResponsePartitionData(
        partition_index=0,
        error_message=None,
        leader_id=node.leader_id,
        leader_epoch=node.epoch,
        high_watermark=raft.high_watermark,
        current_voters=_states(node.voter_states(now_ms), now_ms, wall_ms),
        observers=_states(node.observer_states(now_ms), now_ms, wall_ms),
    )
    return DescribeQuorumResponse(
        error_message=None,
        topics=[ResponseTopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])],
        nodes=[
            Node(
                node_id=voter.key.id,
                listeners=[Listener(name=e.listener, host=e.host, port=e.port) for e in voter.endpoints],
            )
            for voter in node.voters
        ],
    )


def _states(states: Iterable[CoreState], now_ms: int, wall_ms: int) -> list[ReplicaState]:
    """The core counts time from an arbitrary start; the response has times of day."""
    return [
        ReplicaState(
            replica_id=state.key.id,
            replica_directory_id=state.key.directory_id,
            log_end_offset=state.log_end_offset,
            last_fetch_timestamp=_time_of_day(state.last_fetch_ms, now_ms, wall_ms),
            last_caught_up_timestamp=_time_of_day(state.last_caught_up_ms, now_ms, wall_ms),
        )
        for state in states
    ]


def _time_of_day(then_ms: int, now_ms: int, wall_ms: int) -> int:
    return -1 if then_ms < 0 else wall_ms - (now_ms - then_ms)
