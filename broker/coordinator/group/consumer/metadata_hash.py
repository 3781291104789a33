"""What a group knows of its topics, condensed to one number: if it differs, the group needs a new assignment."""

from __future__ import annotations

from collections.abc import Iterable
from struct import pack

from broker.coordinator.group.consumer.xxh3 import xxh3_64
from controller.image import MetadataImage, TopicImage

_LAYOUT_VERSION = 0
"""The first byte of the hashed layout; another layout would have to give another hash."""


def topic_hash(topic: TopicImage, image: MetadataImage) -> int:
    """Over the topic's id, name, partitions and the racks of their replicas; leadership does not matter."""
    most, least = topic.topic_id[:8][::-1], topic.topic_id[8:][::-1]  # Java's two longs, in little endian
    parts = [pack("<B", _LAYOUT_VERSION), most, least, _string(topic.name), pack("<i", len(topic.partitions))]
    for partition in range(len(topic.partitions)):
        parts.append(pack("<i", partition))
        for rack in partition_racks(topic, partition, image):
            parts.append(pack("<i", len(rack)) + _string(rack))
    return xxh3_64(b"".join(parts))


def partition_racks(topic: TopicImage, partition: int, image: MetadataImage) -> list[str]:
    registration = topic.partitions.get(partition)
    if registration is None:
        return []
    brokers = (image.brokers.get(replica) for replica in registration.replicas)
    return sorted(broker.rack for broker in brokers if broker is not None and broker.rack is not None)


def _string(text: str) -> bytes:
    """As the hashing library streams a string: UTF-16 code units, then their number."""
    units = text.encode("utf-16-le")
    return units + pack("<i", len(units) // 2)


class MetadataHashes:
    """Hashes of topics, kept until the topic changes: a heartbeat that joins asks for all topics of its group."""

    __slots__ = ("_cache",)

    def __init__(self) -> None:
        self._cache: dict[str, int] = {}

    def forget(self, topic: str) -> None:
        self._cache.pop(topic, None)

    def group_hash(self, topics: Iterable[str], image: MetadataImage) -> int:
        """Zero for a group without existing topics."""
        known = sorted(topic for topic in topics if topic in image.topics_by_name)
        if not known:
            return 0
        return xxh3_64(b"".join(pack("<q", self._topic_hash(topic, image)) for topic in known))

    def _topic_hash(self, name: str, image: MetadataImage) -> int:
        cached = self._cache.get(name)
        if cached is None:
            cached = self._cache[name] = topic_hash(image.topics_by_name[name], image)
        return cached
