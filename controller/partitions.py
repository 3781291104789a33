"""CreatePartitions, and where a broker keeps its replicas (AssignReplicasToDirs)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

from controller.assignment import (
    MAX_PARTITIONS_PER_REQUEST,
    TOO_MANY_PARTITIONS,
    check_manual_assignment,
    check_someone_can_lead,
    partition_records,
    placed,
)
from controller.image import MetadataImage
from controller.outcome import Outcome
from controller.topics import DUPLICATE_NAME
from protocol.errors import ApiError, ErrorCode
from protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from protocol.metadata.partition_change_record import PartitionChangeRecord
from protocol.schema import Message
from protocol.uuids import Uuid


def create_partitions(
    image: MetadataImage, request: CreatePartitionsRequest, *, random: Random
) -> Outcome[CreatePartitionsResponse]:
    counts = Counter(topic.name for topic in request.topics)
    records: list[Message] = []
    results: list[CreatePartitionsTopicResult] = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        try:
            if counts[topic.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, DUPLICATE_NAME)
            made = _create_partitions(image, topic, random)
            if len(records) + len(made) > MAX_PARTITIONS_PER_REQUEST:
                raise ApiError(ErrorCode.POLICY_VIOLATION, TOO_MANY_PARTITIONS)
        except ApiError as error:
            result = CreatePartitionsTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message or None
            )
        else:
            records += made
            result = CreatePartitionsTopicResult(name=topic.name)
        results.append(result)
    return Outcome([] if request.validate_only else records, CreatePartitionsResponse(results=results))


def _create_partitions(image: MetadataImage, topic: CreatePartitionsTopic, random: Random) -> list[Message]:
    existing = image.topics_by_name.get(topic.name)
    if existing is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    current = len(existing.partitions)
    if topic.count == current:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if topic.count < current:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {current} partition(s); {topic.count} would not be an increase.",
        )
    additional = topic.count - current
    replication_factor = len(existing.partitions[0].replicas)
    assignments: list[Sequence[int]]
    if topic.assignments is None:
        if additional > MAX_PARTITIONS_PER_REQUEST:  # before they are placed, one by one
            raise ApiError(ErrorCode.POLICY_VIOLATION, TOO_MANY_PARTITIONS)
        assignments = list(placed(additional, replication_factor, image, random))
    else:
        assignments = [assignment.broker_ids for assignment in topic.assignments]
        if len(assignments) != additional:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {additional} additional partition(s), but only "
                f"{len(assignments)} assignment(s) were specified.",
            )
        for partition_id, replicas in enumerate(assignments, current):
            check_manual_assignment(replicas, image, replication_factor)
            check_someone_can_lead(replicas, image, partition_id)
    return partition_records(existing.topic_id, enumerate(assignments, current), image)


def assign_directories(
    image: MetadataImage, broker_id: int, assignments: Mapping[tuple[Uuid, int], Uuid]
) -> Outcome[None]:
    """Record in which log directory a broker keeps its replicas: (topic id, partition) -> directory id.

    What is gone or unchanged meanwhile is left out: the broker tells what it did, it does not ask.
    """
    records: list[Message] = []
    for (topic_id, partition_id), directory in assignments.items():
        topic = image.topics_by_id.get(topic_id)
        partition = None if topic is None else topic.partitions.get(partition_id)
        if partition is None or broker_id not in partition.replicas:
            continue
        if partition.directory_of(broker_id) != directory:
            directories = [
                directory if replica == broker_id else partition.directory_of(replica) for replica in partition.replicas
            ]
            records.append(PartitionChangeRecord(partition_id=partition_id, topic_id=topic_id, directories=directories))
    return Outcome(records, None)
