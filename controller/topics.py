"""CreateTopics and DeleteTopics as a state machine: records out of the image and a request.

Topics of one request are judged one by one: an illegal one is refused, the others are made. What is made goes
into the log as one batch. Error sentences are Kafka's, in the order of Kafka's checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from random import Random
from typing import Final

from config.broker import BrokerConfig
from config.describe import describe_topic
from config.errors import ConfigError
from config.topic import validate_topic_configs
from controller.assignment import (
    MAX_PARTITIONS_PER_REQUEST,
    TOO_MANY_PARTITIONS,
    check_manual_assignment,
    check_someone_can_lead,
    partition_records,
    placed,
)
from controller.image import RESOURCE_TOPIC, MetadataImage, TopicImage
from controller.outcome import Outcome
from controller.topic_names import CLUSTER_METADATA_TOPIC, colliding, has_collision_char, why_invalid
from protocol.errors import ApiError, ErrorCode
from protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.metadata.clear_elr_record import ClearElrRecord
from protocol.metadata.config_record import ConfigRecord
from protocol.metadata.remove_topic_record import RemoveTopicRecord
from protocol.metadata.topic_record import TopicRecord
from protocol.schema import Message
from protocol.uuids import Uuid

DUPLICATE_NAME: Final = "Duplicate topic name."
USE_DEFAULT: Final = -1
# A config value in a record has a length of 16 bits in Kafka's older formats; Kafka still keeps to it.
MAX_CONFIG_VALUE: Final = 32767


def create_topics(
    image: MetadataImage,
    request: CreateTopicsRequest,
    *,
    config: BrokerConfig,
    random: Random,
    new_topic_id: Callable[[], Uuid] = Uuid.random,
) -> Outcome[CreateTopicsResponse]:
    """``config`` is the effective configuration: static, then cluster-wide dynamic values."""
    counts = Counter(topic.name for topic in request.topics)
    too_many = _total_partitions(request, config.num_partitions) > MAX_PARTITIONS_PER_REQUEST
    records: list[Message] = []
    results: list[CreatableTopicResult] = []
    answered: set[str] = set()
    for topic in request.topics:
        if topic.name in answered:
            continue
        answered.add(topic.name)
        try:
            if counts[topic.name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, DUPLICATE_NAME)
            if too_many:
                raise ApiError(ErrorCode.POLICY_VIOLATION, TOO_MANY_PARTITIONS)
            made, result = _create_topic(image, topic, config, random, new_topic_id)
        except ApiError as error:
            results.append(
                CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message or None)
            )
        else:
            records += made
            results.append(result)
    return Outcome([] if request.validate_only else records, CreateTopicsResponse(topics=results))


def _create_topic(
    image: MetadataImage,
    topic: CreatableTopic,
    config: BrokerConfig,
    random: Random,
    new_topic_id: Callable[[], Uuid],
) -> tuple[list[Message], CreatableTopicResult]:
    _check_name(image, topic.name)
    overrides = _overrides(topic, config)
    assignments = _manual_assignments(image, topic) if topic.assignments else _placed(image, topic, config, random)
    topic_id = new_topic_id()
    records: list[Message] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    records += config_records(topic.name, overrides, elr=image.features.is_elr_enabled)
    records += partition_records(topic_id, assignments, image)
    return records, CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(assignments),
        replication_factor=len(assignments[0][1]),
        configs=_described(overrides, config),
    )


def config_records(name: str, overrides: dict[str, str], *, elr: bool) -> list[Message]:
    records: list[Message] = [
        ConfigRecord(resource_type=RESOURCE_TOPIC, resource_name=name, name=key, value=value)
        for key, value in sorted(overrides.items())
    ]
    if elr and "min.insync.replicas" in overrides:
        # Who is eligible to lead depends on this value, so eligibility is established anew.
        records.append(ClearElrRecord(topic_name=name))
    return records


def _check_name(image: MetadataImage, name: str) -> None:
    problem = why_invalid(name)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if name in image.topics_by_name:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    if name == CLUSTER_METADATA_TOPIC:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if has_collision_char(name):
        other = colliding(name, image.topics_by_name)
        if other is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")


def _overrides(topic: CreatableTopic, config: BrokerConfig) -> dict[str, str]:
    given = {entry.name: entry.value for entry in topic.configs}
    try:
        validate_topic_configs(given, config)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, error.message) from None
    overrides = {name: value for name, value in given.items() if value is not None}
    check_value_sizes(overrides.values())
    return overrides


def check_value_sizes(values: Iterable[str]) -> None:
    for value in values:
        if len(value.encode()) > MAX_CONFIG_VALUE:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                "The configuration value cannot be added because it exceeds the maximum value size of "
                f"{MAX_CONFIG_VALUE} bytes.",
            )


def _manual_assignments(image: MetadataImage, topic: CreatableTopic) -> list[tuple[int, Sequence[int]]]:
    for what, value in (
        ("replication factor", topic.replication_factor),
        ("numPartitions", topic.num_partitions),
    ):
        if value != USE_DEFAULT:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    chosen: dict[int, Sequence[int]] = {}
    replication_factor: int | None = None
    for assignment in topic.assignments:
        _check_assignment(image, assignment, chosen, replication_factor)
        chosen[assignment.partition_index] = assignment.broker_ids
        replication_factor = len(assignment.broker_ids)
    if sorted(chosen) != list(range(len(chosen))):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return sorted(chosen.items())


def _check_assignment(
    image: MetadataImage,
    assignment: CreatableReplicaAssignment,
    chosen: dict[int, Sequence[int]],
    replication_factor: int | None,
) -> None:
    partition_id = assignment.partition_index
    if partition_id in chosen:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Found multiple manual partition assignments for partition {partition_id}",
        )
    check_manual_assignment(assignment.broker_ids, image, replication_factor)
    check_someone_can_lead(assignment.broker_ids, image, partition_id)


def _placed(
    image: MetadataImage, topic: CreatableTopic, config: BrokerConfig, random: Random
) -> list[tuple[int, Sequence[int]]]:
    replication_factor, partitions = topic.replication_factor, topic.num_partitions
    if replication_factor < USE_DEFAULT or replication_factor == 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if partitions < USE_DEFAULT or partitions == 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    if replication_factor == USE_DEFAULT:
        replication_factor = config.default_replication_factor
    if partitions == USE_DEFAULT:
        partitions = config.num_partitions
    return list(enumerate(placed(partitions, replication_factor, image, random)))


def _total_partitions(request: CreateTopicsRequest, default: int) -> int:
    total = 0
    for topic in request.topics:
        if topic.assignments:
            total += len(topic.assignments)
        else:
            total += default if topic.num_partitions == USE_DEFAULT else max(topic.num_partitions, 0)
    return total


def _described(overrides: dict[str, str], config: BrokerConfig) -> list[CreatableTopicConfigs]:
    """In Kafka's order; what was set stands as it was given, not as it was understood."""
    return [
        CreatableTopicConfigs(
            name=entry.name,
            value=None if entry.sensitive else overrides.get(entry.name, entry.value),
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.sensitive,
        )
        for entry in sorted(describe_topic(overrides, config), key=lambda entry: entry.name)
    ]


def delete_topics(
    image: MetadataImage, request: DeleteTopicsRequest, *, config: BrokerConfig, api_version: int
) -> Outcome[DeleteTopicsResponse]:
    """Up to version 5 topics are named; from version 6 on each is given by name or by id."""
    wanted = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    if not config.delete_topic_enable:
        return Outcome([], _deletion_disabled(wanted, api_version))
    found, results = _resolve(image, wanted)
    records: list[Message] = []
    for topic in found:
        records.append(RemoveTopicRecord(topic_id=topic.topic_id))
        results.append(DeletableTopicResult(name=topic.name, topic_id=topic.topic_id))
    return Outcome(records, DeleteTopicsResponse(responses=results))


def _deletion_disabled(wanted: list[DeleteTopicState], api_version: int) -> DeleteTopicsResponse:
    # TOPIC_DELETION_DISABLED is unknown to clients of the versions before 3.
    code, message = ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled."
    if api_version < 3:
        code, message = ErrorCode.INVALID_REQUEST, "This version does not support topic deletion."
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=state.name, topic_id=state.topic_id, error_code=code, error_message=message)
            for state in wanted
        ]
    )


def _resolve(
    image: MetadataImage, wanted: list[DeleteTopicState]
) -> tuple[list[TopicImage], list[DeletableTopicResult]]:
    """The topics to delete, each once, and the answers for what cannot be deleted."""
    results: list[DeletableTopicResult] = []

    def refuse(code: ErrorCode, message: str, name: str | None = None, topic_id: Uuid = Uuid.ZERO) -> None:
        results.append(DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=message))

    names = Counter(state.name for state in wanted if state.name is not None)
    ids = Counter(state.topic_id for state in wanted if state.name is None)
    found: dict[Uuid, TopicImage] = {}
    for topic_id, count in ids.items():
        topic = image.topics_by_id.get(topic_id)
        if topic_id == Uuid.ZERO:
            refuse(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
        elif count > 1:
            refuse(ErrorCode.INVALID_REQUEST, "Duplicate topic id.", topic_id=topic_id)
        elif topic is None:
            refuse(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.", topic_id=topic_id)
        else:
            found[topic_id] = topic
    with_both = {
        state.name: state.topic_id for state in wanted if state.name is not None and state.topic_id != Uuid.ZERO
    }
    for name, count in names.items():
        topic = image.topics_by_name.get(name)
        if name in with_both:
            message = "You may not specify both topic name and topic id."
            refuse(ErrorCode.INVALID_REQUEST, message, name, with_both[name])
        elif count > 1:
            refuse(ErrorCode.INVALID_REQUEST, DUPLICATE_NAME, name)
        elif topic is None:
            refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.", name)
        elif topic.topic_id in found:
            del found[topic.topic_id]
            message = "The provided topic name maps to an ID that was already supplied."
            refuse(ErrorCode.INVALID_REQUEST, message, name, topic.topic_id)
        else:
            found[topic.topic_id] = topic
    return list(found.values()), results
