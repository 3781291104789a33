"""Broker registrations: from registered and fenced, over active, to shut down.

A broker's epoch is the offset the log was at when it registered, so it grows with every registration. A node that
stopped properly proves it with the epoch of its last registration, read from its clean shutdown file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from config.broker import BrokerConfig
from controller.delta import apply_records
from controller.features import SUPPORTED_FEATURES
from controller.image import Endpoint, MetadataImage, VersionRange
from controller.leadership import Elections
from controller.record_versions import (
    CONTROLLER_REGISTRATION_LEVEL,
    CORDONED_DIRECTORIES_LEVEL,
    DIRECTORY_ASSIGNMENT_LEVEL,
)
from protocol.metadata.broker_registration_change_record import BrokerRegistrationChangeRecord
from protocol.metadata.register_broker_record import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord
from protocol.metadata.register_controller_record import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)
from protocol.schema import Message
from protocol.uuids import Uuid

UNKNOWN_EPOCH = -1


class Registration(NamedTuple):
    """What a broker says of itself. ``previous_epoch`` is -1 unless it stopped properly and knows it."""

    broker_id: int
    incarnation_id: Uuid
    endpoints: Sequence[Endpoint]
    directories: Sequence[Uuid]
    rack: str | None = None
    features: Mapping[str, VersionRange] = SUPPORTED_FEATURES
    previous_epoch: int = UNKNOWN_EPOCH


def register_controller(
    image: MetadataImage, controller_id: int, incarnation_id: Uuid, endpoints: Sequence[Endpoint]
) -> list[Message]:
    if image.features.metadata_version < CONTROLLER_REGISTRATION_LEVEL:
        return []
    return [
        RegisterControllerRecord(
            controller_id=controller_id,
            incarnation_id=incarnation_id,
            end_points=[
                ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in endpoints
            ],
            features=[
                ControllerFeature(
                    name=name,
                    min_supported_version=supported.min_version,
                    max_supported_version=supported.max_version,
                )
                for name, supported in SUPPORTED_FEATURES.items()
            ],
        )
    ]


def register_broker(
    image: MetadataImage, config: BrokerConfig, registration: Registration, next_offset: int
) -> list[Message]:
    """A new, fenced registration, whose epoch is the offset at which it goes into the log, or just before it.

    A registration that was still active belongs to a process that died: what it led is led by others, or by nobody
    until this one is unfenced.
    """
    records: list[Message] = []
    broker_id = registration.broker_id
    existing = image.brokers.get(broker_id)
    if existing is not None:
        stopped_cleanly = registration.previous_epoch == existing.epoch
        elections = Elections(image, config)
        shut_down = elections.on_inactive if stopped_cleanly else elections.on_unclean_shutdown
        records += shut_down(broker_id)
    with_directories = image.features.metadata_version >= DIRECTORY_ASSIGNMENT_LEVEL
    records.append(
        RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=registration.incarnation_id,
            broker_epoch=next_offset,
            end_points=[
                BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in registration.endpoints
            ],
            features=[
                BrokerFeature(
                    name=name,
                    min_supported_version=supported.min_version,
                    max_supported_version=supported.max_version,
                )
                for name, supported in registration.features.items()
            ],
            rack=registration.rack,
            fenced=True,
            log_dirs=sorted(registration.directories, key=_as_kafka_orders) if with_directories else [],
        )
    )
    return records


def unfence_broker(image: MetadataImage, config: BrokerConfig, broker_id: int) -> list[Message]:
    """The broker has caught up with the metadata: it takes part again, and leads what waits for it."""
    broker = image.brokers[broker_id]
    if not broker.fenced:
        return []
    change: Message = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker.epoch, fenced=-1)
    unfenced, _ = apply_records(image, [change], offset=image.offset, epoch=image.epoch)
    records = [change, *Elections(unfenced, config).on_unfenced()]
    if image.features.metadata_version >= CORDONED_DIRECTORIES_LEVEL:
        records.append(
            BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=[])
        )
    return records


def fence_broker(image: MetadataImage, config: BrokerConfig, broker_id: int) -> list[Message]:
    """The broker is gone: others lead what it led. The partitions come first, as Kafka writes them."""
    broker = image.brokers[broker_id]
    change: Message = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker.epoch, fenced=1)
    fenced, _ = apply_records(image, [change], offset=image.offset, epoch=image.epoch)
    return [*Elections(fenced, config).on_inactive(broker_id), change]


def begin_controlled_shutdown(image: MetadataImage, config: BrokerConfig, broker_id: int) -> list[Message]:
    """The broker wants to stop: it gives up leadership first, so that clients find the new leaders in time.

    One that leads nothing has nothing to give up: it is simply fenced when it stops.
    """
    broker = image.brokers.get(broker_id)
    if broker is None or not broker.is_active or not _leads_any(image, broker_id):
        return []
    change: Message = BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=1
    )
    leaving, _ = apply_records(image, [change], offset=image.offset, epoch=image.epoch)
    return [change, *Elections(leaving, config).on_inactive(broker_id)]


def _leads_any(image: MetadataImage, broker_id: int) -> bool:
    return any(
        partition.leader == broker_id
        for topic in image.topics_by_name.values()
        for partition in topic.partitions.values()
    )


def _as_kafka_orders(directory: Uuid) -> tuple[int, int]:
    """Kafka compares ids as two signed longs."""
    return int.from_bytes(directory[:8], "big", signed=True), int.from_bytes(directory[8:], "big", signed=True)
