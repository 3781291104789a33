"""UpdateFeatures and AllocateProducerIds as requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.metadata import broker_record, cluster, image_of, node_config

from controller.feature_updates import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE, update_features
from controller.features import SUPPORTED_FEATURES
from controller.image import MetadataImage
from controller.producer_ids import allocate_producer_ids
from protocol.errors import ApiError, ErrorCode
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from protocol.metadata.config_record import ConfigRecord
from protocol.metadata.feature_level_record import FeatureLevelRecord
from protocol.metadata.register_broker_record import BrokerFeature
from protocol.metadata.register_controller_record import ControllerFeature, RegisterControllerRecord

CONFIG = node_config(Path("/nowhere"), min_insync_replicas="2")


def features(kind: Any, **levels: tuple[int, int]) -> list[Any]:
    ranges = {name: (r.min_version, r.max_version) for name, r in SUPPORTED_FEATURES.items()}
    ranges.update({name.replace("_", "."): value for name, value in levels.items()})
    return [kind(name=name, min_supported_version=a, max_supported_version=b) for name, (a, b) in ranges.items()]


ONE = cluster(broker_record(1, features=features(BrokerFeature)))


def update(
    image: MetadataImage, *updates: tuple[str, int, int], validate_only: bool = False, api_version: int = 2, **more: Any
) -> tuple[MetadataImage, ErrorCode, str | None]:
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level, kind in updates
        ],
        validate_only=validate_only,
    )
    values: dict[str, Any] = {"node_id": 1, "voters": (1,), "kraft_version": 1, **more}
    made = update_features(image, request, config=CONFIG, api_version=api_version, **values)
    assert bool(made.response.results) == (api_version < 2 and made.response.error_code == 0)
    after = image_of(made.records, image) if made.records else image
    return after, ErrorCode(made.response.error_code), made.response.error_message


def refusal(*updates: tuple[str, int, int], image: MetadataImage = ONE, **more: Any) -> str:
    after, code, message = update(image, *updates, **more)
    start = "The update failed for all features since the following feature had an error: "
    assert after is image and code is ErrorCode.INVALID_UPDATE_VERSION and message is not None
    assert message.startswith(start)
    return message.removeprefix(start)


def test_levels_go_down_and_up() -> None:
    image, code, _ = update(ONE, ("transaction.version", 1, SAFE_DOWNGRADE), ("group.version", 0, UNSAFE_DOWNGRADE))
    assert code is ErrorCode.NONE
    assert image.features.finalized["transaction.version"] == 1 and "group.version" not in image.features.finalized
    image, code, _ = update(image, ("transaction.version", 2, UPGRADE), api_version=1)
    assert code is ErrorCode.NONE and image.features.finalized["transaction.version"] == 2


def test_a_dry_run_changes_nothing() -> None:
    assert update(ONE, ("transaction.version", 0, SAFE_DOWNGRADE), validate_only=True) == (ONE, ErrorCode.NONE, None)


def test_one_that_is_refused_stops_all() -> None:
    said = refusal(("transaction.version", 1, SAFE_DOWNGRADE), ("share.version", 9, UPGRADE))
    assert said == "Invalid update version 9 for feature share.version. Local controller 1 only supports versions 0-1"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            ("metadata.version", 29, SAFE_DOWNGRADE),
            "Unsupported metadata.version downgrade from 30 to 29. Refusing to perform the requested downgrade "
            "because it might delete metadata information.",
        ),
        (
            ("metadata.version", 29, UNSAFE_DOWNGRADE),
            "Unsupported metadata.version downgrade from 30 to 29. Unsafe metadata downgrade is not supported in "
            "this version.",
        ),
        (("metadata.version", 6, SAFE_DOWNGRADE), "Invalid update version 6 for feature metadata.version. Local "),
        (
            ("group.version", 0, UPGRADE),
            "Invalid update version 0 for feature group.version. Can't downgrade the version of this feature without "
            "setting the upgrade type to either safe or unsafe downgrade.",
        ),
        (("group.version", -1, UPGRADE), "A feature version cannot be less than 0."),
        (("group.version", 1, 0), "The controller does not support the given upgrade type."),
        (("wings", 1, UPGRADE), "Local controller 1 does not support this feature."),
        (("kraft.version", 0, SAFE_DOWNGRADE), "Can't downgrade the version of this feature."),
    ],
)
def test_what_cannot_be_is_refused(change: tuple[str, int, int], sentence: str) -> None:
    assert sentence in refusal(change)


def test_a_newer_level_is_no_downgrade() -> None:
    image, _, _ = update(ONE, ("transaction.version", 1, SAFE_DOWNGRADE))
    assert refusal(("transaction.version", 2, SAFE_DOWNGRADE), image=image).endswith(
        "Can't downgrade to a newer version."
    )


def test_metadata_version_may_fall_where_no_record_is_lost() -> None:
    older = image_of([FeatureLevelRecord(name="metadata.version", feature_level=29)], ONE)
    image, code, _ = update(older, ("metadata.version", 23, SAFE_DOWNGRADE))
    assert code is ErrorCode.NONE and image.features.metadata_version == 23
    assert update(image, ("metadata.version", 30, UPGRADE))[0].features.metadata_version == 30


def test_every_node_must_support_a_level() -> None:
    older = image_of([broker_record(2, features=features(BrokerFeature, transaction_version=(0, 1)))], ONE)
    image, _, _ = update(older, ("transaction.version", 1, SAFE_DOWNGRADE))
    assert refusal(("transaction.version", 2, UPGRADE), image=image) == (
        "Invalid update version 2 for feature transaction.version. Broker 2 only supports versions 0-1"
    )
    plain = image_of([broker_record(2)], ONE)
    assert refusal(("transaction.version", 1, SAFE_DOWNGRADE), image=plain).endswith(
        "Broker 2 does not support this feature."
    )
    lagging = RegisterControllerRecord(controller_id=3, features=features(ControllerFeature, group_version=(0, 0)))
    behind = image_of([lagging], ONE)
    assert refusal(("group.version", 1, UPGRADE), image=behind).endswith("Controller 3 does not support this feature.")
    assert refusal(("group.version", 1, UPGRADE), voters=(1, 7)).endswith(
        "controller 7 has not registered, and may not support this feature"
    )


def test_features_wait_for_the_metadata_version_they_need() -> None:
    old = image_of(
        [
            FeatureLevelRecord(name="metadata.version", feature_level=22),
            FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0),
        ],
        ONE,
    )
    change = ("eligible.leader.replicas.version", 1, UPGRADE)
    assert refusal(change, image=old).endswith(
        "eligible.leader.replicas.version could not be set to 1 because it depends on metadata.version level 23"
    )
    both, code, _ = update(old, change, ("metadata.version", 23, UPGRADE))
    assert code is ErrorCode.NONE and both.features.is_elr_enabled


def test_with_eligible_replicas_min_isr_is_one_value_for_the_cluster() -> None:
    own = ConfigRecord(resource_type=4, resource_name="1", name="min.insync.replicas", value="3")
    off = image_of([own, FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0)], ONE)
    image, _, _ = update(off, ("eligible.leader.replicas.version", 1, UPGRADE))
    assert image.default_broker_configs == {"min.insync.replicas": "2"} and image.broker_configs(1) == {}
    assert image.features.is_elr_enabled


def test_kraft_version_is_the_quorums_to_raise() -> None:
    asked: list[tuple[int, bool]] = []
    kraft = ("kraft.version", 1, UPGRADE)
    assert update(ONE, kraft)[1] is ErrorCode.NONE  # it is so already
    more = {"kraft_version": 0, "upgrade_kraft_version": lambda level, dry: asked.append((level, dry))}
    assert update(ONE, kraft, validate_only=True, **more)[1] is ErrorCode.NONE
    assert update(ONE, kraft, **more)[1] is ErrorCode.NONE and asked == [(1, True), (1, False)]
    assert refusal(kraft, kraft_version=0) == "The quorum cannot change its kraft.version."


def test_producer_ids_go_to_the_broker_that_is_registered() -> None:
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=101)
    made = allocate_producer_ids(ONE, request)
    assert (made.response.producer_id_start, made.response.producer_id_len) == (0, 1000)
    after = image_of(made.records, ONE)
    assert allocate_producer_ids(after, request).response.producer_id_start == 1000
    with pytest.raises(ApiError, match="STALE_BROKER_EPOCH"):
        allocate_producer_ids(ONE, AllocateProducerIdsRequest(broker_id=1, broker_epoch=7))
