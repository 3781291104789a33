"""What a log directory holds when the node starts: which logs there are, and which of two is the one in use."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

from protocol.uuids import Uuid
from storage.errors import StorageError
from storage.log import Log
from storage.log_directory import LogDirectory
from storage.log_names import METADATA_TOPIC, STRAY_SUFFIX, is_to_be_deleted, parse_log_name
from storage.partition_metadata import CorruptPartitionMetadata, read_partition_metadata

AssignedDirectory = Callable[[str, int], Uuid | None]
"""The id of the log directory in which the metadata has this node's replica of a partition, None if in no one's."""

_log = logging.getLogger(__name__)


class FoundLog(NamedTuple):
    """A partition's directory that is to be opened."""

    log_dir: LogDirectory
    name: str
    topic: str
    partition: int
    is_future: bool = False
    log_start_offset: int = 0
    recovery_point: int = 0
    high_watermark: int = 0
    clean: bool = False

    @property
    def path(self) -> str:
        return os.path.join(self.log_dir.path, self.name)


def find_logs(directory: LogDirectory, *, clean: bool, on_deleted: Callable[[str], None]) -> list[FoundLog]:
    """The logs in use and the future ones, with what the checkpoints say of them. OSError: the directory is lost."""
    recovery_points = directory.read_checkpoint(directory.recovery_points)
    start_offsets = directory.read_checkpoint(directory.log_start_offsets)
    high_watermarks = directory.read_checkpoint(directory.replication_offsets)
    found: list[FoundLog] = []
    with os.scandir(directory.path) as entries:
        names = sorted(entry.name for entry in entries if entry.is_dir())
    for name in names:
        if is_to_be_deleted(name):
            on_deleted(os.path.join(directory.path, name))
            continue
        log_name = parse_log_name(name)
        if log_name is None:
            if not name.startswith(".") and not name.endswith(STRAY_SUFFIX):
                _log.warning("%s in %s is not a partition's directory: ignored", name, directory.path)
            continue
        key = log_name.topic, log_name.partition
        if log_name.topic != METADATA_TOPIC:
            offsets = start_offsets.get(key, 0), recovery_points.get(key, 0), high_watermarks.get(key, 0)
            found.append(FoundLog(directory, name, *log_name, *offsets, clean))
    return found


def read_topic_id(path: str) -> Uuid:
    """Zero where it is missing or damaged: it is written again once the metadata says which topic it is."""
    try:
        return read_partition_metadata(path) or Uuid.ZERO
    except CorruptPartitionMetadata as error:
        _log.warning("%s", error)
        return Uuid.ZERO


def choose(logs: Iterable[Log], assigned: Uuid | None, *, is_future: bool) -> tuple[Log, list[Log]]:
    """Which of several logs of one partition is the one in use, and the others.

    A node that loses power while a replica changes its directory may find it in both. It changes only after the
    controller knows of it, so the one in the directory that the metadata names is right. StorageError if none is. Of
    copies in the making, which nobody would miss, any will do.
    """
    found = list(logs)
    named = [log for log in found if assigned is not None and log.log_dir.directory_id == assigned]
    if len(found) == 1 or named or is_future:
        chosen = (named or found)[0]
        return chosen, [other for other in found if other is not chosen]
    first, second = found[:2]
    raise StorageError(
        f"{first.name} is in two log directories, {first.log_dir.path} and {second.log_dir.path}: "
        "remove the one that is out of date",
        second.log_dir.path,
    )
