"""BrokerRegistration, ControllerRegistration and UnregisterBroker as requests of other nodes.

A broker id belongs to one process at a time. Who holds it is told by the incarnation id, drawn at every start: as long
as the session of one incarnation lives, another is refused, so two brokers with the same id cannot take turns. One with
the same addresses and the same log directories is the same broker, started again: the ports and the locks of the
directories were free, so its predecessor is dead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from config.broker import BrokerConfig
from controller.brokers import UNKNOWN_EPOCH, Registration, register_broker
from controller.heartbeats import BrokerHeartbeats
from controller.image import (
    KRAFT_VERSION_FEATURE,
    METADATA_VERSION_FEATURE,
    Endpoint,
    MetadataImage,
    VersionRange,
)
from controller.leadership import Elections
from controller.outcome import Outcome
from controller.record_versions import CONTROLLER_REGISTRATION_LEVEL, DIRECTORY_ASSIGNMENT_LEVEL
from protocol.errors import ApiError, ErrorCode
from protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from protocol.metadata.register_broker_record import RegisterBrokerRecord
from protocol.metadata.register_controller_record import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)
from protocol.metadata.unregister_broker_record import UnregisterBrokerRecord
from protocol.uuids import Uuid

# From this version on a broker says with which epoch it stopped cleanly; before, every stop counts as unclean.
_WITH_PREVIOUS_EPOCH: Final = 3
_RESERVED_DIRECTORIES: Final = 100  # the ids below have, or may get, a meaning of their own (KIP-858)


def register(
    image: MetadataImage,
    request: BrokerRegistrationRequest,
    *,
    config: BrokerConfig,
    cluster_id: str,
    kraft_version: int,
    heartbeats: BrokerHeartbeats,
    now_ms: int,
    next_offset: int,
    api_version: int = BrokerRegistrationRequest.MAX_VERSION,
) -> Outcome[BrokerRegistrationResponse]:
    """Checks in Kafka's order. Raises ApiError: nothing of a refused registration is remembered."""
    if request.cluster_id != cluster_id:
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}",
        )
    existing = image.brokers.get(request.broker_id)
    if (
        existing is not None
        and existing.incarnation_id != request.incarnation_id
        and heartbeats.has_valid_session(existing.id, existing.epoch, now_ms)
    ):
        raise ApiError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently restarted this should "
            "self-resolve once the heartbeat manager expires the broker's session.",
        )
    if request.is_migrating_zk_broker:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers.")
    if image.features.metadata_version >= DIRECTORY_ASSIGNMENT_LEVEL:
        _check_directories(image, request.broker_id, request.log_dirs)
    features = {f.name: VersionRange(f.min_supported_version, f.max_supported_version) for f in request.features}
    _check_features(image, features, kraft_version)
    previous_epoch = request.previous_broker_epoch if api_version >= _WITH_PREVIOUS_EPOCH else UNKNOWN_EPOCH
    registration = Registration(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        endpoints=[Endpoint(e.name, e.host, e.port, e.security_protocol) for e in request.listeners],
        directories=request.log_dirs,
        rack=request.rack,
        features=features,
        previous_epoch=previous_epoch,
    )
    records = register_broker(image, config, registration, next_offset)
    registered: Any = records[-1]
    assert isinstance(registered, RegisterBrokerRecord)
    return Outcome(records, BrokerRegistrationResponse(broker_epoch=registered.broker_epoch))


def _check_directories(image: MetadataImage, broker_id: int, directories: list[Uuid]) -> None:
    if not directories:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "No directories specified in request")
    if any(int.from_bytes(directory, "big") < _RESERVED_DIRECTORIES for directory in directories):
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request")
    if len(set(directories)) < len(directories):
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request")
    for other in image.brokers.values():
        if other.id != broker_id:
            for directory in directories:
                if directory in other.directories:
                    raise ApiError(
                        ErrorCode.INVALID_REGISTRATION,
                        f"Broker {other.id} is already registered with directory {directory}",
                    )


def _check_features(image: MetadataImage, features: Mapping[str, VersionRange], kraft_version: int) -> None:
    """A broker has to support what the cluster has finalized, or it would misread what it is told."""
    finalized = {**image.features.finalized, KRAFT_VERSION_FEATURE: kraft_version}
    for name, supported in features.items():
        _check_feature(name, supported, finalized.get(name, 0))
    if METADATA_VERSION_FEATURE not in features:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "Request features do not contain 'metadata.version'")
    for name, level in finalized.items():
        if name not in features and level != 0:
            _check_feature(name, VersionRange(0, 0), level)


def _check_feature(name: str, supported: VersionRange, level: int) -> None:
    if not supported.min_version <= level <= supported.max_version:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Unable to register because the broker does not support finalized version {level} of {name}. The broker "
            f"wants a version between {supported.min_version} and {supported.max_version}, inclusive.",
        )


def register_controller(
    image: MetadataImage, request: ControllerRegistrationRequest
) -> Outcome[ControllerRegistrationResponse]:
    if image.features.metadata_version < CONTROLLER_REGISTRATION_LEVEL:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller registrations.",
        )
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=request.zk_migration_ready,
        end_points=[
            ControllerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in request.listeners
        ],
        features=[
            ControllerFeature(
                name=f.name,
                min_supported_version=f.min_supported_version,
                max_supported_version=f.max_supported_version,
            )
            for f in request.features
        ],
    )
    return Outcome([record], ControllerRegistrationResponse())


def unregister(
    image: MetadataImage, request: UnregisterBrokerRequest, *, config: BrokerConfig
) -> Outcome[UnregisterBrokerResponse]:
    """Forget a broker. One that still runs is told so by its next heartbeat and registers anew after a restart."""
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {request.broker_id} is not currently registered")
    return Outcome(
        [
            *Elections(image, config).on_unregistered(broker.id),
            UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch),
        ],
        UnregisterBrokerResponse(),
    )
