"""AssignReplicasToDirs: a broker tells in which log directory it keeps which replica (KIP-858).

When a directory fails, the controller must know what was in it. A broker may also report a replica in a directory that
has failed already: then the replica is out of sync at once. And a replica that turns up in another directory while the
one it was in is not there any more begins anew, empty: it is not eligible to lead what it has lost. Here Kafka 4.3.1
differs: it would take such a broker back as the last known leader, and its followers would truncate to nothing.
"""

from __future__ import annotations

from config.broker import BrokerConfig
from controller.delta import apply_records
from controller.heartbeats import check_broker_epoch
from controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from controller.leadership import Elections
from controller.outcome import Outcome
from controller.partition_change import Target
from controller.record_versions import DIRECTORY_ASSIGNMENT_LEVEL
from protocol.errors import ApiError, ErrorCode
from protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    ResponseDirectoryData,
    ResponsePartitionData,
    ResponseTopicData,
)
from protocol.schema import Message
from protocol.uuids import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Uuid


def assign_replicas_to_directories(
    image: MetadataImage, request: AssignReplicasToDirsRequest, *, config: BrokerConfig
) -> Outcome[AssignReplicasToDirsResponse]:
    if image.features.metadata_version < DIRECTORY_ASSIGNMENT_LEVEL:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    elections = Elections(image, config)
    records: list[Message] = []
    in_lost_directory: list[tuple[Uuid, int]] = []
    directories = []
    for directory in request.directories:
        is_online = _is_online(broker, directory.id)
        topics = []
        for asked in directory.topics:
            topic = image.topics_by_id.get(asked.topic_id)
            results = []
            for part in asked.partitions:
                code = _why_not(topic, part.partition_index, broker.id)
                if topic is not None and code is ErrorCode.NONE:
                    partition = topic.partitions[part.partition_index]
                    emptied = (broker.id,) if _begins_anew(broker, partition, directory.id) else ()
                    target = Target(directories={broker.id: directory.id}, emptied=emptied)
                    record = elections.change(topic, part.partition_index, target)
                    if record is not None:
                        records.append(record)
                    if not is_online:
                        in_lost_directory.append((topic.topic_id, part.partition_index))
                results.append(ResponsePartitionData(partition_index=part.partition_index, error_code=code))
            topics.append(ResponseTopicData(topic_id=asked.topic_id, partitions=results))
        directories.append(ResponseDirectoryData(id=directory.id, topics=topics))
    if in_lost_directory:
        after, _ = apply_records(image, records, offset=image.offset, epoch=image.epoch)
        lost = [(after.topics_by_id[topic_id], index) for topic_id, index in in_lost_directory]
        records += Elections(after, config).without_replicas(broker.id, lost)
    return Outcome(records, AssignReplicasToDirsResponse(directories=directories))


def _begins_anew(broker: BrokerImage, partition: PartitionImage, directory: Uuid) -> bool:
    """Not where it was, which is gone: the disk was replaced. A move between directories has both of them online; one
    that was reported lost, with its disk, may be back as it was."""
    before = partition.directory_of(broker.id)
    was_elsewhere = before not in (directory, DIRECTORY_LOST)
    return was_elsewhere and not _is_online(broker, before) and _is_online(broker, directory)


def _why_not(topic: TopicImage | None, index: int, broker_id: int) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE if broker_id in partition.replicas else ErrorCode.NOT_LEADER_OR_FOLLOWER


def _is_online(broker: BrokerImage, directory: Uuid) -> bool:
    if directory in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING):
        return True
    return directory != DIRECTORY_LOST and (not broker.directories or directory in broker.directories)
