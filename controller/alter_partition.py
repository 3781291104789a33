"""AlterPartition: a leader asks to change its in-sync set, and reports the end of a recovery.

The leader knows who has caught up; the controller knows who is alive and who leads. A request counts only if it was
made in full knowledge of the partition: the leader epoch and the partition epoch must be the present ones.

Versions 2 and 3: 3 names members with their broker epochs, so that one that restarted meanwhile is not taken for the
process that had caught up (KIP-903).
"""

from __future__ import annotations

import logging
from typing import Final

from config.broker import BrokerConfig
from controller.delta import NO_LEADER_CHANGE, merge_partition_change
from controller.heartbeats import check_broker_epoch
from controller.image import LEADER_RECOVERED, LEADER_RECOVERING, MetadataImage, PartitionImage, TopicImage
from controller.leadership import Elections
from controller.outcome import Outcome
from controller.partition_change import Target
from protocol.errors import ErrorCode
from protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)
from protocol.schema import Message

_log = logging.getLogger(__name__)

_WITH_BROKER_EPOCHS: Final = 3
_ANY_EPOCH: Final = -1
_RECOVERY_STATES: Final = (LEADER_RECOVERED, LEADER_RECOVERING)


def alter_partition(
    image: MetadataImage,
    request: AlterPartitionRequest,
    *,
    config: BrokerConfig,
    api_version: int = AlterPartitionRequest.MAX_VERSION,
) -> Outcome[AlterPartitionResponse]:
    """Raises STALE_BROKER_EPOCH when the sender is not the broker that is registered."""
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    elections = Elections(image, config)
    records: list[Message] = []
    answers = []
    for asked in request.topics:
        topic = image.topics_by_id.get(asked.topic_id)
        answer = ResponseTopicData(topic_id=asked.topic_id)
        answers.append(answer)
        for part in asked.partitions:
            isr = _wanted_isr(part, api_version)
            if topic is None:
                error: ErrorCode | None = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                error = _why_not(image, topic, part, isr, request.broker_id)
            if topic is None or error is not None:
                answer.partitions.append(_refused(part, error or ErrorCode.UNKNOWN_TOPIC_ID))
            else:
                answer.partitions.append(_altered(elections, topic, part, isr, request.broker_id, records))
    return Outcome(records, AlterPartitionResponse(topics=answers))


def _wanted_isr(part: PartitionData, api_version: int) -> list[BrokerState]:
    if api_version >= _WITH_BROKER_EPOCHS:
        return part.new_isr_with_epochs
    return [BrokerState(broker_id=broker_id, broker_epoch=_ANY_EPOCH) for broker_id in part.new_isr]


def _refused(part: PartitionData, error: ErrorCode) -> ResponsePartitionData:
    return ResponsePartitionData(partition_index=part.partition_index, error_code=error)


def _altered(
    elections: Elections,
    topic: TopicImage,
    part: PartitionData,
    isr: list[BrokerState],
    broker_id: int,
    records: list[Message],
) -> ResponsePartitionData:
    partition = topic.partitions[part.partition_index]
    target = Target(
        isr=tuple(member.broker_id for member in isr),
        leader_recovery_state=part.leader_recovery_state,
        election=elections.usual_election(topic),
    )
    record = elections.change(topic, part.partition_index, target)
    if record is not None:
        records.append(record)
        was_moving = bool(partition.adding_replicas or partition.removing_replicas)
        partition = merge_partition_change(partition, record)
        if was_moving and not (partition.adding_replicas or partition.removing_replicas):
            _log.info("%s-%d has its new replicas %s", topic.name, part.partition_index, partition.replicas)
        if record.leader not in (broker_id, NO_LEADER_CHANGE):
            # The change itself ended the sender's leadership: it was not among the new replicas.
            return _refused(part, ErrorCode.NEW_LEADER_ELECTED)
    return ResponsePartitionData(
        partition_index=part.partition_index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def _why_not(
    image: MetadataImage, topic: TopicImage, part: PartitionData, isr: list[BrokerState], broker_id: int
) -> ErrorCode | None:
    """Kafka's checks in Kafka's order; the leader learns the reason from the log alone."""
    partition = topic.partitions.get(part.partition_index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    error, reason = _check_epochs(partition, part, broker_id)
    if error is None:
        error, reason = _check_isr(image, partition, part, isr, broker_id)
    if error is not None:
        _log.info(
            "AlterPartition of broker %d for %s-%d is refused with %s: %s (isr %s, epochs %d and %d)",
            broker_id,
            topic.name,
            part.partition_index,
            error.name,
            reason,
            list(partition.isr),
            partition.leader_epoch,
            partition.partition_epoch,
        )
    return error


def _check_epochs(partition: PartitionImage, part: PartitionData, broker_id: int) -> tuple[ErrorCode | None, str]:
    if part.leader_epoch > partition.leader_epoch:
        # The broker has seen more than this node: so this node no longer is the active controller.
        return ErrorCode.NOT_CONTROLLER, f"leader epoch {part.leader_epoch} is newer"
    if part.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER, f"partition epoch {part.partition_epoch} is newer"
    if part.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch {part.leader_epoch} is over"
    if partition.leader != broker_id:
        return ErrorCode.INVALID_REQUEST, f"the leader is {partition.leader}"
    if part.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION, f"partition epoch {part.partition_epoch} is over"
    return None, ""


def _check_isr(
    image: MetadataImage, partition: PartitionImage, part: PartitionData, isr: list[BrokerState], broker_id: int
) -> tuple[ErrorCode | None, str]:
    members = [member.broker_id for member in isr]
    if len(set(members)) < len(members) or not set(members) <= set(partition.replicas):
        return ErrorCode.INVALID_REQUEST, f"{members} is no in-sync set of the replicas {list(partition.replicas)}"
    if broker_id not in members:
        return ErrorCode.INVALID_REQUEST, f"the leader left itself out of {members}"
    state = part.leader_recovery_state
    if state not in _RECOVERY_STATES:
        return ErrorCode.INVALID_REQUEST, f"there is no leader recovery state {state}"
    if state == LEADER_RECOVERING and len(members) > 1:
        return ErrorCode.INVALID_REQUEST, f"nobody can be in sync with a leader that recovers, but {members} are"
    if partition.leader_recovery_state == LEADER_RECOVERED and state == LEADER_RECOVERING:
        return ErrorCode.INVALID_REQUEST, "only an election makes a leader recover"
    ineligible = {m.broker_id: why for m in isr if (why := _why_ineligible(image, m)) is not None}
    if ineligible:
        return ErrorCode.INELIGIBLE_REPLICA, ", ".join(f"{who} {why}" for who, why in ineligible.items())
    return None, ""


def _why_ineligible(image: MetadataImage, member: BrokerState) -> str | None:
    broker = image.brokers.get(member.broker_id)
    if broker is None:
        return "is not registered"
    if broker.in_controlled_shutdown:
        return "is shutting down"
    if broker.fenced:
        return "is fenced"
    if member.broker_epoch not in (_ANY_EPOCH, broker.epoch):
        return f"has broker epoch {broker.epoch}, not {member.broker_epoch}"
    return None
