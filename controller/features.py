"""Feature levels: what this node supports, and what a new cluster starts with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller.delta import MetadataError
from controller.image import (
    ELR_VERSION_FEATURE,
    KRAFT_VERSION_FEATURE,
    METADATA_VERSION_FEATURE,
    RESOURCE_BROKER,
    FeaturesImage,
    VersionRange,
)
from controller.record_versions import (
    LATEST_METADATA_VERSION,
    MIN_METADATA_VERSION,
    TRANSACTIONS_LEVEL,
)
from protocol.metadata.begin_transaction_record import BeginTransactionRecord
from protocol.metadata.config_record import ConfigRecord
from protocol.metadata.end_transaction_record import EndTransactionRecord
from protocol.metadata.feature_level_record import FeatureLevelRecord
from protocol.schema import Message

KRAFT_VERSION: Final = 1  # voters live in the log (KIP-853)

SUPPORTED_FEATURES: Final[Mapping[str, VersionRange]] = {
    "group.version": VersionRange(0, 1),
    KRAFT_VERSION_FEATURE: VersionRange(0, KRAFT_VERSION),
    METADATA_VERSION_FEATURE: VersionRange(MIN_METADATA_VERSION, LATEST_METADATA_VERSION),
    "share.version": VersionRange(0, 1),
    "streams.version": VersionRange(0, 1),
    "transaction.version": VersionRange(0, 2),
    ELR_VERSION_FEATURE: VersionRange(0, 1),
}

# What Apache Kafka 4.3.1's formatter writes, in its order.
BOOTSTRAP_FEATURES: Final[Mapping[str, int]] = {
    METADATA_VERSION_FEATURE: LATEST_METADATA_VERSION,
    ELR_VERSION_FEATURE: 1,
    "group.version": 1,
    "share.version": 1,
    "streams.version": 1,
    "transaction.version": 2,
}


def bootstrap_feature_records() -> list[Message]:
    return [FeatureLevelRecord(name=name, feature_level=level) for name, level in BOOTSTRAP_FEATURES.items()]


def bootstrap_log_records(bootstrap: list[Message], min_insync_replicas: int) -> list[Message]:
    """What the first leader of a new cluster writes: the bootstrap records, in a transaction.

    With eligible leader replicas, min.insync.replicas must be one value for the whole cluster (a replica's
    eligibility depends on it), so the broker's setting becomes cluster-wide configuration.
    """
    levels = {r.name: r.feature_level for r in bootstrap if isinstance(r, FeatureLevelRecord)}
    records = list(bootstrap)
    if levels.get(ELR_VERSION_FEATURE, 0) >= 1:
        records.append(
            ConfigRecord(
                resource_type=RESOURCE_BROKER,
                resource_name="",
                name="min.insync.replicas",
                value=str(min_insync_replicas),
            )
        )
    if levels.get(METADATA_VERSION_FEATURE, 0) < TRANSACTIONS_LEVEL:
        return records
    return [BeginTransactionRecord(name="Bootstrap records"), *records, EndTransactionRecord()]


def check_supported(features: FeaturesImage) -> None:
    """Refuse a cluster whose finalized features this node does not know: it would misread its metadata."""
    for name, level in features.finalized.items():
        supported = SUPPORTED_FEATURES.get(name)
        if supported is None:
            raise MetadataError(f"the cluster has finalized feature {name} at level {level}, which is unknown here")
        if not supported.min_version <= level <= supported.max_version:
            raise MetadataError(
                f"the cluster has finalized {name} at level {level}; this node supports "
                f"{supported.min_version} to {supported.max_version}"
            )
