"""Records of the metadata log applied to an image.

A builder copies a mapping only when a batch first changes something in it, so that a batch of 4,000
partitions costs one copy of what it touches and not 4,000. A record that contradicts the image (a change of
an unknown topic) means that the log and the image have parted, which is never repaired by guessing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from controller.image import (
    METADATA_VERSION_FEATURE,
    NO_LEADER,
    RESOURCE_TOPIC,
    AclImage,
    BrokerImage,
    ConfigResource,
    ControllerImage,
    DelegationTokenImage,
    Endpoint,
    FeaturesImage,
    ImageDelta,
    MetadataImage,
    PartitionImage,
    QuotaEntity,
    ScramCredentialImage,
    TopicImage,
    VersionRange,
)
from protocol.schema import Message
from protocol.uuids import DIRECTORY_MIGRATING, Uuid

NO_LEADER_CHANGE: Final = -2  # PartitionChangeRecord.leader: the leader stays as it is


class MetadataError(Exception):
    """A record that cannot be applied to the image: the metadata log is not one this node can continue."""


class ImageBuilder:
    """Collects the changes of a run of records; ``build`` gives the next image and what changed.

    Use once: after ``build`` the builder's mappings belong to the image and must not change any more.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._delta = ImageDelta()
        # Copies, made when first changed: field of MetadataImage -> its new mapping
        self._copies: dict[str, dict[Any, Any]] = {}
        # Topics under change: their partitions, as mappings of their own until build
        self._partitions: dict[Uuid, dict[int, PartitionImage]] = {}
        self._configs: dict[ConfigResource, dict[str, str]] = {}
        self._next_producer_id = image.next_producer_id
        self._zk_migration_state = image.zk_migration_state

    def replay_all(self, records: Iterable[Message]) -> None:
        for record in records:
            self.replay(record)

    def replay(self, record: Message) -> None:
        apply = _APPLY.get(record.API_KEY)
        if apply is None:
            raise MetadataError(
                f"the metadata log holds a {type(record).__name__} (type {record.API_KEY}), which this version "
                "of Barnabas cannot apply; it was written by a newer broker"
            )
        apply(self, record)

    def build(self, offset: int, epoch: int, timestamp: int = 0) -> tuple[MetadataImage, ImageDelta]:
        if self._partitions:
            by_id, by_name = self._mutable("topics_by_id"), self._mutable("topics_by_name")
            for topic_id, partitions in self._partitions.items():
                topic = by_id[topic_id]._replace(partitions=partitions)
                by_id[topic_id] = by_name[topic.name] = topic
        if self._configs:
            configs = self._mutable("configs")
            for resource, values in self._configs.items():
                if values:
                    configs[resource] = values
                else:
                    configs.pop(resource, None)
        finalized = self._copies.pop("finalized", None)
        features = self._image.features
        if finalized is not None:
            features = FeaturesImage(finalized.get(METADATA_VERSION_FEATURE, 0), finalized, offset)
        else:
            features = features._replace(epoch=offset)
        image = replace(
            self._image,
            offset=offset,
            epoch=epoch,
            timestamp=timestamp or self._image.timestamp,
            features=features,
            next_producer_id=self._next_producer_id,
            zk_migration_state=self._zk_migration_state,
            **self._copies,
        )
        return image, self._delta

    # Working copies

    def _mutable(self, name: str) -> dict[Any, Any]:
        copy = self._copies.get(name)
        if copy is None:
            source = self._image.features.finalized if name == "finalized" else getattr(self._image, name)
            copy = self._copies[name] = dict(source)
        return copy

    def _topic(self, topic_id: Uuid, record: Message) -> TopicImage:
        topics = self._copies.get("topics_by_id", self._image.topics_by_id)
        topic: TopicImage | None = topics.get(topic_id)
        if topic is None:
            raise MetadataError(f"{type(record).__name__} names topic id {topic_id}, which does not exist")
        return topic

    def _partitions_of(self, topic: TopicImage) -> dict[int, PartitionImage]:
        partitions = self._partitions.get(topic.topic_id)
        if partitions is None:
            partitions = self._partitions[topic.topic_id] = dict(topic.partitions)
            self._delta.changed_topics.add(topic.name)
        return partitions

    def _set_partition(self, topic: TopicImage, partition_id: int, partition: PartitionImage) -> None:
        self._partitions_of(topic)[partition_id] = partition
        self._delta.changed_partitions.setdefault(topic.name, set()).add(partition_id)

    def _broker(self, broker_id: int, epoch: int, record: Message) -> BrokerImage:
        broker: BrokerImage | None = self._copies.get("brokers", self._image.brokers).get(broker_id)
        if broker is None:
            raise MetadataError(f"{type(record).__name__} names broker {broker_id}, which is not registered")
        if broker.epoch != epoch:
            raise MetadataError(
                f"{type(record).__name__} names epoch {epoch} of broker {broker_id}, whose epoch is {broker.epoch}"
            )
        return broker

    def _set_broker(self, broker: BrokerImage) -> None:
        self._mutable("brokers")[broker.id] = broker
        self._delta.changed_brokers.add(broker.id)

    # One method per record type

    def _register_broker(self, record: Any) -> None:
        self._set_broker(
            BrokerImage(
                id=record.broker_id,
                epoch=record.broker_epoch,
                incarnation_id=record.incarnation_id,
                endpoints=_endpoints(record.end_points),
                features=_features(record.features),
                rack=record.rack,
                fenced=record.fenced,
                in_controlled_shutdown=record.in_controlled_shutdown,
                directories=tuple(record.log_dirs),
                cordoned_directories=_maybe_tuple(record.cordoned_log_dirs),
                is_migrating_zk_broker=record.is_migrating_zk_broker,
            )
        )

    def _unregister_broker(self, record: Any) -> None:
        self._broker(record.broker_id, record.broker_epoch, record)
        del self._mutable("brokers")[record.broker_id]
        self._delta.changed_brokers.add(record.broker_id)

    def _fence_broker(self, record: Any) -> None:
        self._set_broker(self._broker(record.id, record.epoch, record)._replace(fenced=True))

    def _unfence_broker(self, record: Any) -> None:
        self._set_broker(self._broker(record.id, record.epoch, record)._replace(fenced=False))

    def _change_broker_registration(self, record: Any) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch, record)
        if record.fenced:  # 1 fences, -1 unfences, 0 leaves as it is
            broker = broker._replace(fenced=record.fenced > 0)
        if record.in_controlled_shutdown:  # 1 sets; it ends with the next registration
            broker = broker._replace(in_controlled_shutdown=True)
        if record.log_dirs:
            broker = broker._replace(directories=tuple(record.log_dirs))
        if record.cordoned_log_dirs is not None:
            broker = broker._replace(cordoned_directories=tuple(record.cordoned_log_dirs))
        self._set_broker(broker)

    def _register_controller(self, record: Any) -> None:
        self._mutable("controllers")[record.controller_id] = ControllerImage(
            id=record.controller_id,
            incarnation_id=record.incarnation_id,
            zk_migration_ready=record.zk_migration_ready,
            endpoints=_endpoints(record.end_points),
            features=_features(record.features),
        )
        self._delta.changed_controllers.add(record.controller_id)

    def _create_topic(self, record: Any) -> None:
        by_name = self._mutable("topics_by_name")
        existing = by_name.get(record.name)
        if existing is not None:
            raise MetadataError(
                f"TopicRecord creates topic {record.name} with id {record.topic_id}, "
                f"but it exists with id {existing.topic_id}"
            )
        topic = TopicImage(record.name, record.topic_id, {})
        by_name[record.name] = self._mutable("topics_by_id")[record.topic_id] = topic
        self._partitions[record.topic_id] = {}
        self._delta.changed_topics.add(record.name)
        self._delta.created_topics.add(record.name)

    def _create_partition(self, record: Any) -> None:
        topic = self._topic(record.topic_id, record)
        replicas = tuple(record.replicas)
        self._set_partition(
            topic,
            record.partition_id,
            PartitionImage(
                replicas=replicas,
                isr=tuple(record.isr),
                elr=tuple(record.eligible_leader_replicas or ()),
                last_known_elr=tuple(record.last_known_elr or ()),
                adding_replicas=tuple(record.adding_replicas),
                removing_replicas=tuple(record.removing_replicas),
                # Version 0 carries no directories: the replicas come from a time before KIP-858.
                directories=tuple(record.directories) or (DIRECTORY_MIGRATING,) * len(replicas),
                leader=record.leader,
                leader_epoch=record.leader_epoch,
                partition_epoch=record.partition_epoch,
                leader_recovery_state=record.leader_recovery_state,
            ),
        )

    def _change_partition(self, record: Any) -> None:
        topic = self._topic(record.topic_id, record)
        partitions = self._partitions_of(topic)
        partition = partitions.get(record.partition_id)
        if partition is None:
            raise MetadataError(
                f"PartitionChangeRecord names partition {record.partition_id} of topic {topic.name}, "
                "which does not exist"
            )
        self._set_partition(topic, record.partition_id, merge_partition_change(partition, record))

    def _remove_topic(self, record: Any) -> None:
        topic = self._topic(record.topic_id, record)
        before = self._image.topics_by_id.get(record.topic_id)
        del self._mutable("topics_by_name")[topic.name]
        del self._mutable("topics_by_id")[record.topic_id]
        self._partitions.pop(record.topic_id, None)
        self._delta.changed_topics.discard(topic.name)
        self._delta.created_topics.discard(topic.name)
        self._delta.changed_partitions.pop(topic.name, None)
        if before is not None:  # a topic made and removed in one batch was never seen by anyone
            self._delta.deleted_topics.append(before)
        resource = (RESOURCE_TOPIC, topic.name)
        if resource in self._configs or resource in self._image.configs:
            self._configs[resource] = {}
            self._delta.changed_configs.add(resource)

    def _clear_elr(self, record: Any) -> None:
        """An empty name clears those of every topic (min.insync.replicas changed cluster-wide)."""
        topics = self._copies.get("topics_by_name", self._image.topics_by_name)
        if record.topic_name:
            topic = topics.get(record.topic_name)
            if topic is None:
                raise MetadataError(f"ClearElrRecord names topic {record.topic_name}, which does not exist")
            chosen = [topic]
        else:
            chosen = list(topics.values())
        for topic in chosen:
            partitions = self._partitions.get(topic.topic_id, topic.partitions)
            for partition_id, partition in list(partitions.items()):
                if partition.elr or partition.last_known_elr:
                    cleared = partition._replace(
                        elr=(), last_known_elr=(), partition_epoch=partition.partition_epoch + 1
                    )
                    self._set_partition(topic, partition_id, cleared)

    def _set_config(self, record: Any) -> None:
        resource = (record.resource_type, record.resource_name)
        values = self._configs.get(resource)
        if values is None:
            values = self._configs[resource] = dict(self._image.configs.get(resource, ()))
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        self._delta.changed_configs.add(resource)

    def _set_feature(self, record: Any) -> None:
        finalized = self._mutable("finalized")
        if record.feature_level == 0 and record.name != METADATA_VERSION_FEATURE:
            finalized.pop(record.name, None)  # level 0 is the same as not finalized
        else:
            finalized[record.name] = record.feature_level
        self._delta.features_changed = True

    def _set_producer_ids(self, record: Any) -> None:
        self._next_producer_id = record.next_producer_id
        self._delta.producer_ids_changed = True

    def _set_client_quota(self, record: Any) -> None:
        entity: QuotaEntity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
        quotas = self._mutable("client_quotas")
        values = dict(quotas.get(entity, ()))
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if values:
            quotas[entity] = values
        else:
            quotas.pop(entity, None)
        self._delta.changed_quotas.add(entity)

    def _set_acl(self, record: Any) -> None:
        self._mutable("acls")[record.id] = AclImage(
            id=record.id,
            resource_type=record.resource_type,
            resource_name=record.resource_name,
            pattern_type=record.pattern_type,
            principal=record.principal,
            host=record.host,
            operation=record.operation,
            permission_type=record.permission_type,
        )
        self._delta.acls_changed = True

    def _remove_acl(self, record: Any) -> None:
        if self._mutable("acls").pop(record.id, None) is None:
            raise MetadataError(f"RemoveAccessControlEntryRecord names entry {record.id}, which does not exist")
        self._delta.acls_changed = True

    def _set_scram(self, record: Any) -> None:
        self._mutable("scram_credentials")[record.mechanism, record.name] = ScramCredentialImage(
            bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
        )
        self._delta.scram_changed = True

    def _remove_scram(self, record: Any) -> None:
        self._mutable("scram_credentials").pop((record.mechanism, record.name), None)
        self._delta.scram_changed = True

    def _set_token(self, record: Any) -> None:
        self._mutable("delegation_tokens")[record.token_id] = DelegationTokenImage(
            token_id=record.token_id,
            owner=record.owner,
            requester=record.requester,
            renewers=tuple(record.renewers),
            issue_timestamp=record.issue_timestamp,
            max_timestamp=record.max_timestamp,
            expiration_timestamp=record.expiration_timestamp,
        )
        self._delta.delegation_tokens_changed = True

    def _remove_token(self, record: Any) -> None:
        self._mutable("delegation_tokens").pop(record.token_id, None)
        self._delta.delegation_tokens_changed = True

    def _set_zk_migration_state(self, record: Any) -> None:
        self._zk_migration_state = record.zk_migration_state

    def _nothing(self, record: Any) -> None:
        """NoOp records, and the borders of transactions, which the loader has resolved before."""


_APPLY: Final[dict[int, Callable[[ImageBuilder, Any], None]]] = {
    0: ImageBuilder._register_broker,
    1: ImageBuilder._unregister_broker,
    2: ImageBuilder._create_topic,
    3: ImageBuilder._create_partition,
    4: ImageBuilder._set_config,
    5: ImageBuilder._change_partition,
    7: ImageBuilder._fence_broker,
    8: ImageBuilder._unfence_broker,
    9: ImageBuilder._remove_topic,
    10: ImageBuilder._set_token,
    11: ImageBuilder._set_scram,
    12: ImageBuilder._set_feature,
    14: ImageBuilder._set_client_quota,
    15: ImageBuilder._set_producer_ids,
    17: ImageBuilder._change_broker_registration,
    18: ImageBuilder._set_acl,
    19: ImageBuilder._remove_acl,
    20: ImageBuilder._nothing,
    21: ImageBuilder._set_zk_migration_state,
    22: ImageBuilder._remove_scram,
    23: ImageBuilder._nothing,
    24: ImageBuilder._nothing,
    25: ImageBuilder._nothing,
    26: ImageBuilder._remove_token,
    27: ImageBuilder._register_controller,
    28: ImageBuilder._clear_elr,
}


def merge_partition_change(partition: PartitionImage, change: Any) -> PartitionImage:
    """A change carries only what differs. The leader epoch is not in it: it grows when a leader is named."""
    replicas = partition.replicas if change.replicas is None else tuple(change.replicas)
    directories = partition.directories
    if change.directories is not None:
        directories = tuple(change.directories)
    elif change.replicas is not None:
        directories = tuple(partition.directory_of(replica) for replica in replicas)
    leader, leader_epoch = partition.leader, partition.leader_epoch
    if change.leader != NO_LEADER_CHANGE:
        leader, leader_epoch = change.leader, leader_epoch + 1
    recovery = change.leader_recovery_state
    return PartitionImage(
        replicas=replicas,
        isr=_changed(change.isr, partition.isr),
        elr=_changed(change.eligible_leader_replicas, partition.elr),
        last_known_elr=_changed(change.last_known_elr, partition.last_known_elr),
        adding_replicas=_changed(change.adding_replicas, partition.adding_replicas),
        removing_replicas=_changed(change.removing_replicas, partition.removing_replicas),
        directories=directories,
        leader=leader if leader >= 0 else NO_LEADER,
        leader_epoch=leader_epoch,
        partition_epoch=partition.partition_epoch + 1,
        leader_recovery_state=partition.leader_recovery_state if recovery < 0 else recovery,
    )


def apply_records(
    image: MetadataImage, records: Iterable[Message], *, offset: int, epoch: int, timestamp: int = 0
) -> tuple[MetadataImage, ImageDelta]:
    """The image after ``records``, the last of which has ``offset``."""
    builder = ImageBuilder(image)
    builder.replay_all(records)
    return builder.build(offset, epoch, timestamp)


def _changed(new: list[int] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if new is None else tuple(new)


def _maybe_tuple(ids: list[Uuid] | None) -> tuple[Uuid, ...] | None:
    return None if ids is None else tuple(ids)


def _endpoints(listed: list[Any]) -> dict[str, Endpoint]:
    return {e.name: Endpoint(e.name, e.host, e.port, e.security_protocol) for e in listed}


def _features(listed: list[Any]) -> dict[str, VersionRange]:
    return {f.name: VersionRange(f.min_supported_version, f.max_supported_version) for f in listed}
