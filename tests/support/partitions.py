"""Images with one topic "t", for tests of what happens to its partitions."""

from __future__ import annotations

from typing import Any

from support.metadata import image_of

from controller.image import MetadataImage, PartitionImage
from protocol.metadata.partition_record import PartitionRecord
from protocol.metadata.topic_record import TopicRecord
from protocol.uuids import Uuid

TOPIC = Uuid(b"t" * 16)


def directory(broker_id: int) -> Uuid:
    """The one log directory of the brokers that `support.metadata.broker_record` makes."""
    return Uuid(bytes([200, broker_id]) * 8)


def partition_record(index: int, *replicas: int, **fields: Any) -> PartitionRecord:
    values = {
        "replicas": list(replicas),
        "isr": list(replicas),
        "leader": replicas[0],
        "leader_epoch": 0,
        "partition_epoch": 0,
        "directories": [directory(replica) for replica in replicas],
        **fields,
    }
    return PartitionRecord(partition_id=index, topic_id=TOPIC, **values)


def with_partition(image: MetadataImage, *replicas: int, **fields: Any) -> MetadataImage:
    """A topic "t" with one partition, all replicas in sync unless said otherwise."""
    return image_of([TopicRecord(name="t", topic_id=TOPIC), partition_record(0, *replicas, **fields)], image)


def only_partition(image: MetadataImage) -> PartitionImage:
    return image.topics_by_name["t"].partitions[0]
