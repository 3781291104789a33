"""New partitions: their replicas, given by hand or placed, and the records that create them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Final

from controller.image import LEADER_RECOVERED, BrokerImage, MetadataImage
from controller.placement import place
from controller.record_versions import DIRECTORY_ASSIGNMENT_LEVEL
from protocol.errors import ApiError, ErrorCode
from protocol.metadata.partition_record import PartitionRecord
from protocol.schema import Message
from protocol.uuids import DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Uuid

# Kafka's limit of partitions made by one request: larger batches would hold up everything behind them.
MAX_PARTITIONS_PER_REQUEST: Final = 10_000
TOO_MANY_PARTITIONS: Final = "Excessively large number of partitions per request."


def check_manual_assignment(replicas: Sequence[int], image: MetadataImage, replication_factor: int | None) -> None:
    """Kafka's checks in Kafka's order; ``replication_factor`` is that of the partitions before, None at first."""
    if not replicas:
        raise _refused("The manual partition assignment includes an empty replica list.")
    previous = None
    for broker_id in sorted(replicas):
        if broker_id not in image.brokers:
            raise _refused(
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
            )
        if broker_id == previous:
            raise _refused(f"The manual partition assignment includes the broker {broker_id} more than once.")
        previous = broker_id
    if replication_factor is not None and len(replicas) != replication_factor:
        raise _refused(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is "
            f"not consistent with previous partitions, which have {replication_factor} replica(s)."
        )


def check_someone_can_lead(replicas: Sequence[int], image: MetadataImage, partition_id: int) -> None:
    if not any(image.brokers[broker_id].is_active for broker_id in replicas):
        raise _refused(
            "All brokers specified in the manual partition assignment for partition "
            f"{partition_id} are fenced or in controlled shutdown."
        )


def placed(count: int, replication_factor: int, image: MetadataImage, random: Random) -> list[tuple[int, ...]]:
    """Replicas chosen by the placer, each with at least one broker that can lead now."""
    assignments = place(count, replication_factor, image.brokers.values(), random)
    for replicas in assignments:
        if not any(image.brokers[broker_id].is_active for broker_id in replicas):
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {replication_factor} time(s): "
                "All brokers are currently fenced or in controlled shutdown.",
            )
    return assignments


def partition_records(
    topic_id: Uuid, assignments: Iterable[tuple[int, Sequence[int]]], image: MetadataImage
) -> list[Message]:
    """One record per (partition id, replicas). The replicas that are up are in sync: there is no data yet."""
    brokers = image.brokers
    active = {broker.id for broker in brokers.values() if broker.is_active}
    directories = {broker.id: default_directory(broker) for broker in brokers.values()}
    with_directories = image.features.metadata_version >= DIRECTORY_ASSIGNMENT_LEVEL
    records: list[Message] = []
    for partition_id, replicas in assignments:
        isr = [broker_id for broker_id in replicas if broker_id in active]
        records.append(
            PartitionRecord(
                partition_id=partition_id,
                topic_id=topic_id,
                replicas=list(replicas),
                isr=isr,
                leader=isr[0],
                leader_recovery_state=LEADER_RECOVERED,
                leader_epoch=0,
                partition_epoch=0,
                directories=[directories[broker_id] for broker_id in replicas] if with_directories else [],
            )
        )
    return records


def default_directory(broker: BrokerImage) -> Uuid:
    """With one log directory there is nothing to choose; with several the broker says later which it took."""
    if len(broker.directories) == 1:
        return broker.directories[0]
    return DIRECTORY_UNASSIGNED if broker.directories else DIRECTORY_MIGRATING


def _refused(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
