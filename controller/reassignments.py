"""AlterPartitionReassignments and ListPartitionReassignments: partitions that move to other brokers.

A reassignment first adds the new replicas to the old ones; it ends when the new ones are in sync (see
``partition_change``), in the very change that reports so. Until then it can be replaced by another, or cancelled, which
brings the original replicas back.
"""

from __future__ import annotations

from collections.abc import Sequence

from config.broker import BrokerConfig
from controller.assignment import check_manual_assignment
from controller.image import MetadataImage, PartitionImage, TopicImage
from controller.leadership import Elections
from controller.outcome import Outcome
from controller.partition_change import Reassignment, Target
from protocol.errors import ApiError, ErrorCode
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from protocol.metadata.partition_change_record import PartitionChangeRecord
from protocol.schema import Message


def alter_partition_reassignments(
    image: MetadataImage, request: AlterPartitionReassignmentsRequest, *, config: BrokerConfig
) -> Outcome[AlterPartitionReassignmentsResponse]:
    """Each partition is judged by itself: what is refused does not hold up the others."""
    elections = Elections(image, config)
    records: list[Message] = []
    responses = []
    for topic in request.topics:
        answer = ReassignableTopicResponse(name=topic.name)
        responses.append(answer)
        for wanted in topic.partitions:
            result = ReassignablePartitionResponse(partition_index=wanted.partition_index, error_message=None)
            answer.partitions.append(result)
            try:
                record = _alter(image, elections, topic.name, wanted, request.allow_replication_factor_change)
            except ApiError as error:
                result.error_code, result.error_message = error.code, error.message or None
            else:
                if record is not None:
                    records.append(record)
    return Outcome(
        records,
        AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change,
            error_message=None,
            responses=responses,
        ),
    )


def _alter(
    image: MetadataImage, elections: Elections, name: str, wanted: ReassignablePartition, may_resize: bool
) -> PartitionChangeRecord | None:
    topic = image.topics_by_name.get(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    partition = topic.partitions.get(wanted.partition_index)
    if partition is None:
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{wanted.partition_index}."
        )
    if wanted.replicas is None:
        return _cancel(elections, topic, wanted.partition_index, partition)
    check_manual_assignment(wanted.replicas, image, None)
    if not may_resize:
        _check_same_size(partition, wanted.replicas)
    plan = plan_reassignment(partition, wanted.replicas)
    dropped = tuple(replica for replica in partition.replicas if replica not in plan.replicas)
    complete = partition.isr or partition.elr or partition.last_known_elr
    if dropped and complete and set(complete) <= set(dropped):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to replace the reassignment of {name}:{wanted.partition_index}: its replicas "
            f"{', '.join(map(str, dropped))} would be dropped at once, and no other has all records.",
        )
    isr = tuple(replica for replica in partition.isr if replica not in dropped)
    target = Target(isr=isr, replicas=plan.replicas, adding=plan.adding, removing=plan.removing, emptied=dropped)
    return elections.change(topic, wanted.partition_index, target)


def plan_reassignment(partition: PartitionImage, wanted: Sequence[int]) -> Reassignment:
    """From the original replicas to ``wanted``, whatever is under way (KIP-455).

    A replica that only the plan before this one wanted is in neither: it is dropped at once, as a cancellation would.
    If it stayed until the end of this plan, a cancellation of that would take it for an original one.

    Here Kafka 4.3.1 differs: it plans from the replicas of the moment, and what would become empty keeps its old value.
    So a replica that the first plan added and the second does not want is both added and removed, and such a
    reassignment never ends; one that goes back to where it came from removes what it should keep.
    """
    original = set(partition.replicas) - set(partition.adding_replicas)
    removing = tuple(sorted(original - set(wanted)))
    adding = tuple(sorted(set(wanted) - original))
    return Reassignment((*wanted, *removing), adding, removing)


def _check_same_size(partition: PartitionImage, wanted: Sequence[int]) -> None:
    """AlterPartitionReassignments 1: a caller that only moves can say so. A move under way counts by its target."""
    size = len({*partition.replicas, *partition.adding_replicas} - set(partition.removing_replicas))
    if size != len(wanted):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {size} to {len(wanted)}",
        )


def _cancel(
    elections: Elections, topic: TopicImage, index: int, partition: PartitionImage
) -> PartitionChangeRecord | None:
    if not (partition.adding_replicas or partition.removing_replicas):
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    adding = partition.adding_replicas
    replicas = tuple(replica for replica in partition.replicas if replica not in adding)
    isr = tuple(replica for replica in partition.isr if replica not in adding)
    if not isr:
        # None of the original replicas is complete.
        if not replicas:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Invalid replica assignment: addingReplicas contains all replicas.",
            )
        isr = replicas[:1]
        if not elections.unclean_allowed(topic):
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{index} because it would require an "
                "unclean leader election.",
            )
    target = Target(isr=isr, replicas=replicas, adding=(), removing=(), election=elections.usual_election(topic))
    return elections.change(topic, index, target)


def list_partition_reassignments(
    image: MetadataImage, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Without a list of topics, everything that moves. What does not move or does not exist is left out."""
    found = []
    if request.topics is None:
        asked = [(topic.name, list(topic.partitions)) for topic in image.topics_by_name.values()]
    else:
        asked = [(topic.name, topic.partition_indexes) for topic in request.topics]
    for name, indexes in asked:
        moving = [ongoing for index in indexes if (ongoing := _ongoing(image, name, index)) is not None]
        if moving:
            found.append(OngoingTopicReassignment(name=name, partitions=moving))
    return ListPartitionReassignmentsResponse(error_message=None, topics=found)


def _ongoing(image: MetadataImage, name: str, index: int) -> OngoingPartitionReassignment | None:
    partition = image.partition(name, index)
    if partition is None or not (partition.adding_replicas or partition.removing_replicas):
        return None
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding_replicas),
        removing_replicas=list(partition.removing_replicas),
    )
