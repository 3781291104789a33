"""An image as records, in the order in which Kafka writes a snapshot: what is named comes before what names it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from controller.image import METADATA_VERSION_FEATURE, BrokerImage, MetadataImage, PartitionImage, TopicImage
from controller.record_versions import CORDONED_DIRECTORIES_LEVEL, DIRECTORY_ASSIGNMENT_LEVEL, ELR_LEVEL
from protocol.metadata.access_control_entry_record import AccessControlEntryRecord
from protocol.metadata.client_quota_record import ClientQuotaRecord, EntityData
from protocol.metadata.config_record import ConfigRecord
from protocol.metadata.delegation_token_record import DelegationTokenRecord
from protocol.metadata.feature_level_record import FeatureLevelRecord
from protocol.metadata.partition_record import PartitionRecord
from protocol.metadata.producer_ids_record import ProducerIdsRecord
from protocol.metadata.register_broker_record import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord
from protocol.metadata.register_controller_record import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)
from protocol.metadata.topic_record import TopicRecord
from protocol.metadata.user_scram_credential_record import UserScramCredentialRecord
from protocol.metadata.zk_migration_state_record import ZkMigrationStateRecord
from protocol.schema import Message


def image_records(image: MetadataImage) -> Iterator[Message]:
    """Applied to an empty image, these give this one again (its offset aside)."""
    yield from _features(image)
    for broker_id in sorted(image.brokers):
        yield _broker(image.brokers[broker_id], image.features.metadata_version)
    for controller_id in sorted(image.controllers):
        controller = image.controllers[controller_id]
        yield RegisterControllerRecord(
            controller_id=controller.id,
            incarnation_id=controller.incarnation_id,
            zk_migration_ready=controller.zk_migration_ready,
            end_points=_listed(ControllerEndpoint, controller.endpoints),
            features=_supported(ControllerFeature, controller.features),
        )
    for topic in image.topics_by_name.values():
        yield from _topic(topic, image.features.metadata_version)
    for (kind, resource), values in image.configs.items():
        for name, value in values.items():
            yield ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)
    yield from _client_quotas(image)
    if image.next_producer_id > 0:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    yield from _security(image)
    if image.zk_migration_state:
        yield ZkMigrationStateRecord(zk_migration_state=image.zk_migration_state)


def _features(image: MetadataImage) -> Iterator[Message]:
    """metadata.version first: it decides how the rest is to be read."""
    finalized = image.features.finalized
    if METADATA_VERSION_FEATURE in finalized:
        yield FeatureLevelRecord(name=METADATA_VERSION_FEATURE, feature_level=finalized[METADATA_VERSION_FEATURE])
    for name, level in finalized.items():
        if name != METADATA_VERSION_FEATURE:
            yield FeatureLevelRecord(name=name, feature_level=level)


def _broker(broker: BrokerImage, metadata_version: int) -> Message:
    with_directories = metadata_version >= DIRECTORY_ASSIGNMENT_LEVEL
    cordoned = broker.cordoned_directories if metadata_version >= CORDONED_DIRECTORIES_LEVEL else None
    return RegisterBrokerRecord(
        broker_id=broker.id,
        is_migrating_zk_broker=broker.is_migrating_zk_broker,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=_listed(BrokerEndpoint, broker.endpoints),
        features=_supported(BrokerFeature, broker.features),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories) if with_directories else [],
        cordoned_log_dirs=None if cordoned is None else list(cordoned),
    )


def _topic(topic: TopicImage, metadata_version: int) -> Iterator[Message]:
    yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
    for partition_id in sorted(topic.partitions):
        yield _partition(topic, partition_id, topic.partitions[partition_id], metadata_version)


def _partition(topic: TopicImage, partition_id: int, partition: PartitionImage, metadata_version: int) -> Message:
    with_elr = metadata_version >= ELR_LEVEL
    return PartitionRecord(
        partition_id=partition_id,
        topic_id=topic.topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories) if metadata_version >= DIRECTORY_ASSIGNMENT_LEVEL else [],
        eligible_leader_replicas=list(partition.elr) if with_elr and partition.elr else None,
        last_known_elr=list(partition.last_known_elr) if with_elr and partition.last_known_elr else None,
    )


def _client_quotas(image: MetadataImage) -> Iterator[Message]:
    for entity, values in image.client_quotas.items():
        for key, value in values.items():
            yield ClientQuotaRecord(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                key=key,
                value=value,
                remove=False,
            )


def _security(image: MetadataImage) -> Iterator[Message]:
    for acl in image.acls.values():
        yield AccessControlEntryRecord(**acl._asdict())
    for (mechanism, name), credential in image.scram_credentials.items():
        yield UserScramCredentialRecord(name=name, mechanism=mechanism, **credential._asdict())
    for token in image.delegation_tokens.values():
        yield DelegationTokenRecord(**{**token._asdict(), "renewers": list(token.renewers)})


def _listed(struct: Any, endpoints: Mapping[str, Any]) -> list[Any]:
    return [
        struct(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol) for e in endpoints.values()
    ]


def _supported(struct: Any, features: Mapping[str, Any]) -> list[Any]:
    return [
        struct(name=name, min_supported_version=r.min_version, max_supported_version=r.max_version)
        for name, r in features.items()
    ]
