"""Legal topic names. The sentences are Kafka's: tools print them, and scripts look for them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

MAX_NAME_LENGTH: Final = 249  # a directory "<name>-<partition>.<uuid>-delete" must fit into 255 bytes
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"


def why_invalid(name: str) -> str | None:
    """Why a name is refused, None if it is legal."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        reason = f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    elif not _LEGAL.fullmatch(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return None
    return f"Topic name is invalid: {reason}"


def has_collision_char(name: str) -> bool:
    return "." in name or "_" in name


def collision_key(name: str) -> str:
    """Metric names replace '.' by '_', so two topics whose keys are equal would share their metrics."""
    return name.replace(".", "_")


def colliding(name: str, existing: Iterable[str]) -> str | None:
    """The existing topic that ``name`` collides with, the first in order if there are several."""
    key = collision_key(name)
    return min((other for other in existing if other != name and collision_key(other) == key), default=None)
