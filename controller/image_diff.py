"""What differs between two images: needed when a snapshot replaces the log, and no records say what changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from controller.image import ImageDelta, MetadataImage

K = TypeVar("K")
V = TypeVar("V")


def difference(old: MetadataImage, new: MetadataImage) -> ImageDelta:
    """The delta that leads from ``old`` to ``new``, as if records had been applied."""
    delta = ImageDelta()
    for topic_id, topic in old.topics_by_id.items():
        if topic_id not in new.topics_by_id:
            delta.deleted_topics.append(topic)
    for topic_id, topic in new.topics_by_id.items():
        before = old.topics_by_id.get(topic_id)
        if before == topic:
            continue
        delta.changed_topics.add(topic.name)
        partitions = {} if before is None else before.partitions
        delta.changed_partitions[topic.name] = _changed(partitions, topic.partitions)
        if before is None:
            delta.created_topics.add(topic.name)
    delta.changed_configs = _changed(old.configs, new.configs)
    delta.changed_brokers = _changed(old.brokers, new.brokers)
    delta.changed_controllers = _changed(old.controllers, new.controllers)
    delta.features_changed = old.features.finalized != new.features.finalized
    delta.producer_ids_changed = old.next_producer_id != new.next_producer_id
    delta.changed_quotas = _changed(old.client_quotas, new.client_quotas)
    delta.acls_changed = old.acls != new.acls
    delta.scram_changed = old.scram_credentials != new.scram_credentials
    delta.delegation_tokens_changed = old.delegation_tokens != new.delegation_tokens
    return delta


def _changed(old: Mapping[K, V], new: Mapping[K, V]) -> set[K]:
    """The keys that are new, gone, or lead to another value."""
    return {key for key, value in new.items() if old.get(key) != value} | (old.keys() - new.keys())
