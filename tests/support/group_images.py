"""Metadata images for tests of the group coordinator: topics by name and number of partitions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace

from controller.image import RESOURCE_GROUP, ImageDelta, MetadataImage, PartitionImage, TopicImage
from protocol.uuids import Uuid


def topic_id_of(name: str, incarnation: int = 0) -> Uuid:
    """The same id for the same name in every run."""
    return Uuid(hashlib.md5(f"{name}/{incarnation}".encode()).digest())


def topic_image(name: str, partitions: int, incarnation: int = 0) -> TopicImage:
    held = {number: PartitionImage((0,), (0,), leader=0) for number in range(partitions)}
    return TopicImage(name, topic_id_of(name, incarnation), held)


def image_of(
    topics: Mapping[str, int], offset: int = 1, group_configs: Mapping[str, Mapping[str, str]] | None = None
) -> MetadataImage:
    images = [topic_image(name, partitions) for name, partitions in topics.items()]
    configs = {(RESOURCE_GROUP, group): settings for group, settings in (group_configs or {}).items()}
    return _with_topics(MetadataImage(offset=offset, configs=configs), {image.name: image for image in images})


def with_topic(image: MetadataImage, topic: TopicImage) -> tuple[MetadataImage, ImageDelta]:
    """Adds the topic, or puts it in the place of one that had fewer partitions."""
    topics = dict(image.topics_by_name)
    delta = ImageDelta(changed_topics={topic.name})
    if topic.name not in topics:
        delta.created_topics.add(topic.name)
    topics[topic.name] = topic
    return _with_topics(replace(image, offset=image.offset + 1), topics), delta


def without_topic(image: MetadataImage, name: str) -> tuple[MetadataImage, ImageDelta]:
    topics = dict(image.topics_by_name)
    delta = ImageDelta(deleted_topics=[topics.pop(name)])
    return _with_topics(replace(image, offset=image.offset + 1), topics), delta


def _with_topics(image: MetadataImage, topics: dict[str, TopicImage]) -> MetadataImage:
    return replace(image, topics_by_name=topics, topics_by_id={topic.topic_id: topic for topic in topics.values()})
