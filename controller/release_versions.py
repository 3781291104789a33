"""The names of metadata.version's levels, and the feature levels that come with a release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller.features import SUPPORTED_FEATURES
from controller.image import ELR_VERSION_FEATURE, KRAFT_VERSION_FEATURE, METADATA_VERSION_FEATURE
from controller.record_versions import LATEST_METADATA_VERSION, MIN_METADATA_VERSION

# Level 7 is 3.3-IV3; each name is one level more.
_NAMES: Final = (
    *("3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2"),
    *("3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0"),
    *("4.0-IV0", "4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0"),
)

NAME_OF_LEVEL: Final[Mapping[int, str]] = dict(enumerate(_NAMES, MIN_METADATA_VERSION))
_LEVEL_OF_NAME: Final[Mapping[str, int]] = {
    # A bare release is its last level, because later ones overwrite earlier ones here.
    **{name.split("-")[0]: level for level, name in NAME_OF_LEVEL.items()},
    **{name: level for level, name in NAME_OF_LEVEL.items()},
}

# From which metadata.version on a new cluster has a feature at which level.
_DEFAULTS: Final[Mapping[str, tuple[tuple[int, int], ...]]] = {
    ELR_VERSION_FEATURE: ((26, 1),),
    "group.version": ((22, 1),),
    "share.version": ((28, 1),),
    "streams.version": ((29, 1),),
    "transaction.version": ((24, 2),),
}


def level_of(name: str) -> int:
    """Raises ValueError with Kafka's sentence. What follows the second number of a release does not matter."""
    level = _LEVEL_OF_NAME.get(".".join(name.split(".")[:2]))
    if level is None:
        raise ValueError(f"Unknown metadata.version '{name}'. Supported metadata.version are: {', '.join(_NAMES)}")
    return level


def default_levels(metadata_version: int) -> dict[str, int]:
    """The features a cluster formatted for this level starts with, metadata.version and kraft.version aside."""
    return {
        name: max((level for since, level in steps if since <= metadata_version), default=0)
        for name, steps in _DEFAULTS.items()
    }


FEATURE_NAMES: Final = tuple(sorted(name for name in SUPPORTED_FEATURES if name != METADATA_VERSION_FEATURE))
assert NAME_OF_LEVEL[LATEST_METADATA_VERSION] == _NAMES[-1] and KRAFT_VERSION_FEATURE in FEATURE_NAMES
