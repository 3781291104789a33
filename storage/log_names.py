"""What a partition's directory is called, as Kafka calls it.

`topic-N` is the log in use. `topic-N.<32 hex digits>-future` is its copy on the way to another log directory, `-delete`
one that is to go, `-stray` one that the metadata does not know.
"""

from __future__ import annotations

import re
import uuid
from typing import Final, NamedTuple

METADATA_TOPIC: Final = "__cluster_metadata"
DELETE_SUFFIX: Final = "-delete"
FUTURE_SUFFIX: Final = "-future"
STRAY_SUFFIX: Final = "-stray"
MAX_NAME: Final = 255  # what a file system takes

_PARTITION_DIR = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)")
_SET_ASIDE = re.compile(r"(.+)\.[0-9a-f]{32}(-delete|-future|-stray)")


class LogName(NamedTuple):
    """What the name of a partition's directory says."""

    topic: str
    partition: int
    is_future: bool


def set_aside_name(topic: str, partition: int, kind: str) -> str:
    """A unique name for a directory that is out of use; the topic is cut if the name would be too long."""
    suffix = f"-{partition}.{uuid.uuid4().hex}{kind}"
    return topic[: MAX_NAME - len(suffix)] + suffix


def future_name(topic: str, partition: int) -> str:
    """A unique name for a copy in the making. It is not cut, because the topic is read from it: it may be too long."""
    return f"{topic}-{partition}.{uuid.uuid4().hex}{FUTURE_SUFFIX}"


def parse_log_name(name: str) -> LogName | None:
    """None for what is no log in use and no future log."""
    set_aside = _SET_ASIDE.fullmatch(name)
    if set_aside is not None and set_aside[2] != FUTURE_SUFFIX:
        return None
    match = _PARTITION_DIR.fullmatch(name if set_aside is None else set_aside[1])
    return None if match is None else LogName(match[1], int(match[2]), set_aside is not None)


def is_to_be_deleted(name: str) -> bool:
    set_aside = _SET_ASIDE.fullmatch(name)
    return set_aside is not None and set_aside[2] == DELETE_SUFFIX
