"""DescribeQuorum: the leader, its epoch and high watermark, and how far every voter is."""

from __future__ import annotations

from controller.metadata_log import MetadataLog
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
from protocol.messages.voters_record import VotersRecord


def describe_quorum(
    request: DescribeQuorumRequest, log: MetadataLog, voters: VotersRecord, now_ms: int
) -> DescribeQuorumResponse:
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
    replicas = [
        ReplicaState(
            replica_id=voter.voter_id,
            replica_directory_id=voter.voter_directory_id,
            log_end_offset=log.log_end_offset,
            last_fetch_timestamp=now_ms,
            last_caught_up_timestamp=now_ms,
        )
        for voter in voters.voters
    ]
    partition = ResponsePartitionData(
        partition_index=0,
        error_message=None,
        leader_id=log.node.node_id,
        leader_epoch=log.epoch,
        high_watermark=log.high_watermark,
        current_voters=replicas,
    )
    return DescribeQuorumResponse(
        error_message=None,
        topics=[ResponseTopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[partition])],
        nodes=[
            Node(
                node_id=voter.voter_id,
                listeners=[Listener(name=e.name, host=e.host, port=e.port) for e in voter.endpoints],
            )
            for voter in voters.voters
        ],
    )
