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
    """A registration, whose epoch is the offset at which it goes into the log, or just before it.

    A new incarnation starts fenced. A registration that was still active belongs to a process that died: what it led is
    led by others, or by nobody until this one is unfenced. The same incarnation may register again to amend what it
    said of itself; then its epoch and its state remain.
    """
    broker_id = registration.broker_id
    existing = image.brokers.get(broker_id)
    if existing is not None and existing.incarnation_id == registration.incarnation_id:
        return [_registered(image, registration, existing.epoch, existing.fenced, existing.in_controlled_shutdown)]
    elections = Elections(image, config)
    stopped_cleanly = existing is not None and registration.previous_epoch == existing.epoch
    shut_down = elections.on_inactive if stopped_cleanly else elections.on_unclean_shutdown
    return [*shut_down(broker_id), _registered(image, registration, next_offset, True, False)]


def _registered(
    image: MetadataImage, registration: Registration, epoch: int, fenced: bool, in_controlled_shutdown: bool
) -> Message:
    with_directories = image.features.metadata_version >= DIRECTORY_ASSIGNMENT_LEVEL
    return RegisterBrokerRecord(
        broker_id=registration.broker_id,
        incarnation_id=registration.incarnation_id,
        broker_epoch=epoch,
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
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        log_dirs=sorted(registration.directories, key=_as_kafka_orders) if with_directories else [],
    )


def unfence_broker(image: MetadataImage, config: BrokerConfig, broker_id: int) -> list[Message]:
    """``unfenced`` with the list of cordoned directories, which a remote broker tells with its heartbeat."""
    records = unfenced(image, config, broker_id)
    if records and image.features.metadata_version >= CORDONED_DIRECTORIES_LEVEL:
        epoch = image.brokers[broker_id].epoch
        records.append(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, cordoned_log_dirs=[]))
    return records


def unfenced(image: MetadataImage, config: BrokerConfig, broker_id: int) -> list[Message]:
    """The broker has caught up with the metadata: it takes part again, and leads what waits for it."""
    broker = image.brokers[broker_id]
    if not broker.fenced:
        return []
    change: Message = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker.epoch, fenced=-1)
    after, _ = apply_records(image, [change], offset=image.offset, epoch=image.epoch)
    return [change, *Elections(after, config).on_unfenced()]


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
    if broker is None or broker.fenced or not leads_any(image, broker_id):
        return []
    changes: list[Message] = []
    if not broker.in_controlled_shutdown:
        changes.append(
            BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=1)
        )
    leaving, _ = apply_records(image, changes, offset=image.offset, epoch=image.epoch)
    return [*changes, *Elections(leaving, config).on_inactive(broker_id)]


def leads_any(image: MetadataImage, broker_id: int) -> bool:
    return any(
        partition.leader == broker_id
        for topic in image.topics_by_name.values()
        for partition in topic.partitions.values()
    )


def _as_kafka_orders(directory: Uuid) -> tuple[int, int]:
    """Kafka compares ids as two signed longs."""
    return int.from_bytes(directory[:8], "big", signed=True), int.from_bytes(directory[8:], "big", signed=True)
