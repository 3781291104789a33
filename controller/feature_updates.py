"""UpdateFeatures: the levels at which the whole cluster works, raised and lowered.

All updates of a request are made or none. A level is taken only if every registered node supports it; what lowers
metadata.version so far that records would be lost is refused, as in Kafka, which cannot do it either.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final

from config.broker import BrokerConfig
from controller.features import SUPPORTED_FEATURES
from controller.image import (
    ELR_VERSION_FEATURE,
    KRAFT_VERSION_FEATURE,
    METADATA_VERSION_FEATURE,
    RESOURCE_BROKER,
    MetadataImage,
    VersionRange,
)
from controller.leadership import MIN_ISR
from controller.outcome import Outcome
from controller.record_versions import (
    CONTROLLER_REGISTRATION_LEVEL,
    ELR_LEVEL,
    MIN_METADATA_VERSION,
)
from protocol.errors import ApiError, ErrorCode
from protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from protocol.metadata.config_record import ConfigRecord
from protocol.metadata.feature_level_record import FeatureLevelRecord
from protocol.metadata.no_op_record import NoOpRecord
from protocol.schema import Message

_log = logging.getLogger(__name__)

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3

# Levels of metadata.version that brought new records or fields: below them, that metadata cannot be kept.
_CHANGED_METADATA: Final = frozenset({7, 8, 11, 13, 14, 15, 17, 23, 30})
_DISABLED: Final = VersionRange(0, 0)
# (feature, level) -> what must be finalized at least; any level above 0 needs the least metadata.version besides.
_DEPENDENCIES: Final[Mapping[tuple[str, int], Mapping[str, int]]] = {
    (ELR_VERSION_FEATURE, 1): {METADATA_VERSION_FEATURE: ELR_LEVEL},
}

KraftUpgrade = Callable[[int, bool], None]


def _no_kraft_upgrade(level: int, validate_only: bool) -> None:
    raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, "The quorum cannot change its kraft.version.")


def update_features(
    image: MetadataImage,
    request: UpdateFeaturesRequest,
    *,
    config: BrokerConfig,
    node_id: int,
    voters: Collection[int],
    kraft_version: int,
    upgrade_kraft_version: KraftUpgrade = _no_kraft_upgrade,
    api_version: int = UpdateFeaturesRequest.MAX_VERSION,
) -> Outcome[UpdateFeaturesResponse]:
    """``upgrade_kraft_version`` is the quorum's own (level, whether only to check): that level is no record of ours."""
    updates = {update.feature: update for update in request.feature_updates}
    wanted = {name: update.max_version_level for name, update in updates.items()}
    proposed = {**image.features.finalized, **wanted}
    records: list[Message] = []
    try:
        for name, update in updates.items():
            kind = update.upgrade_type
            if api_version == 0:
                kind = SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
            current = kraft_version if name == KRAFT_VERSION_FEATURE else image.features.finalized.get(name, 0)
            _check_direction(name, update.max_version_level, current, kind, image, node_id, voters)
            if name == METADATA_VERSION_FEATURE:
                _check_metadata_version(update.max_version_level, current, kind)
                records.append(FeatureLevelRecord(name=name, feature_level=update.max_version_level))
            elif name == KRAFT_VERSION_FEATURE:
                if kind == UPGRADE:
                    if update.max_version_level != current:
                        upgrade_kraft_version(update.max_version_level, request.validate_only)
                    records.append(NoOpRecord())
                elif update.max_version_level != current:
                    raise _invalid(name, update.max_version_level, "Can't downgrade the version of this feature.")
            else:
                lacking = why_dependent(name, update.max_version_level, proposed)
                if lacking is not None:
                    raise _invalid(name, update.max_version_level, lacking)
                records.append(FeatureLevelRecord(name=name, feature_level=update.max_version_level))
    except ApiError as error:
        message = f"The update failed for all features since the following feature had an error: {error.message}"
        return Outcome([], UpdateFeaturesResponse(error_code=error.code, error_message=message))
    if not request.validate_only and wanted.get(ELR_VERSION_FEATURE, 0) > 0:
        records = [*_one_min_isr(image, config), *records]
    results = [UpdatableFeatureResult(feature=name, error_message=None) for name in updates] if api_version < 2 else []
    return Outcome(
        [] if request.validate_only else records, UpdateFeaturesResponse(error_message=None, results=results)
    )


def _invalid(name: str, level: int, reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {reason}")


def _check_direction(
    name: str,
    level: int,
    current: int,
    kind: int,
    image: MetadataImage,
    node_id: int,
    voters: Collection[int],
) -> None:
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        raise _invalid(name, level, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _invalid(name, level, "A feature version cannot be less than 0.")
    reason = _why_unsupported(name, level, image, node_id, voters)
    if reason is not None:
        raise _invalid(name, level, reason)
    if level < current and kind == UPGRADE:
        raise _invalid(
            name,
            level,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        )
    if level > current and kind != UPGRADE:
        raise _invalid(name, level, "Can't downgrade to a newer version.")


def _why_unsupported(name: str, level: int, image: MetadataImage, node_id: int, voters: Collection[int]) -> str | None:
    """This controller, every registered broker, every other controller of the quorum."""
    nodes = [(f"Local controller {node_id}", SUPPORTED_FEATURES)]
    nodes += [(f"Broker {broker.id}", broker.features) for broker in image.brokers.values()]
    registered = image.features.metadata_version >= CONTROLLER_REGISTRATION_LEVEL
    if registered:
        nodes += [
            (f"Controller {controller.id}", controller.features)
            for controller in image.controllers.values()
            if controller.id != node_id
        ]
    for who, features in nodes:
        supported = features.get(name, _DISABLED)
        if not supported.min_version <= level <= supported.max_version:
            if supported.max_version == 0:
                return f"{who} does not support this feature."
            return f"{who} only supports versions {_range(supported)}"
    if registered:
        for voter in voters:
            if voter != node_id and voter not in image.controllers:
                return f"controller {voter} has not registered, and may not support this feature"
    return None


def _range(supported: VersionRange) -> str:
    low, high = supported
    return str(low) if low == high else f"{low}-{high}"


def _check_metadata_version(level: int, current: int, kind: int) -> None:
    if level >= current:
        _log.warning("Upgrading metadata.version from %d to %d.", current, level)
        return
    if any(lost in _CHANGED_METADATA for lost in range(level + 1, current + 1)):
        reason = (
            "Unsafe metadata downgrade is not supported in this version."
            if kind == UNSAFE_DOWNGRADE
            else "Refusing to perform the requested downgrade because it might delete metadata information."
        )
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Unsupported metadata.version downgrade from {current} to {level}. {reason}",
        )
    _log.warning("Downgrading metadata.version from %d to %d.", current, level)


def why_dependent(name: str, level: int, proposed: Mapping[str, int]) -> str | None:
    """What a level lacks; None if nothing. ``proposed`` holds the levels of all features after the change."""
    if level >= 1 and proposed.get(METADATA_VERSION_FEATURE, 0) < MIN_METADATA_VERSION:
        return (
            f"{name} could not be set to {level} because it depends on "
            f"metadata.version={MIN_METADATA_VERSION} (3.3-IV3)"
        )
    for needed, least in _DEPENDENCIES.get((name, level), {}).items():
        if proposed.get(needed, 0) < least:
            return f"{name} could not be set to {level} because it depends on {needed} level {least}"
    return None


def _one_min_isr(image: MetadataImage, config: BrokerConfig) -> list[Message]:
    """With eligible leader replicas the whole cluster agrees on one min.insync.replicas per topic."""
    records: list[Message] = []
    if MIN_ISR not in image.default_broker_configs:
        value = str(config.min_insync_replicas)
        records.append(ConfigRecord(resource_type=RESOURCE_BROKER, resource_name="", name=MIN_ISR, value=value))
    for (kind, name), values in image.configs.items():
        if kind == RESOURCE_BROKER and name and MIN_ISR in values:
            _log.info("Removing min.insync.replicas of broker %s: with ELR it is one value for the cluster", name)
            records.append(ConfigRecord(resource_type=kind, resource_name=name, name=MIN_ISR, value=None))
    return records
