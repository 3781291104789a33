"""`partition.metadata`: the topic id of the partition whose directory it lies in (KIP-516).

    version: 0
    topic_id: q1Sh-9_ISia_zwGINzRvyQ

A topic that was deleted and created again has another id: the file tells a left-over directory from the new
topic's.
"""

from __future__ import annotations

import os
import re

from protocol.uuids import Uuid
from storage.atomic_file import read_text, write_atomically
from storage.disk import DISK, Disk

FILE_NAME = "partition.metadata"
VERSION = 0
_LINE = re.compile(r"([^:\s]+):\s+(\S+)")


class CorruptPartitionMetadata(Exception):
    """A partition.metadata that cannot be understood; the message names file and line."""


def write_partition_metadata(directory: str, topic_id: Uuid, *, ops: Disk = DISK) -> None:
    """Durable on return: it is written once, before the first record."""
    text = f"version: {VERSION}\ntopic_id: {topic_id}"
    write_atomically(os.path.join(directory, FILE_NAME), text.encode(), ops)


def read_partition_metadata(directory: str) -> Uuid | None:
    """The topic id, None if there is no such file."""
    path = os.path.join(directory, FILE_NAME)
    text = read_text(path)
    if text is None:
        return None
    values: list[str] = []
    lines = text.splitlines()
    for number, name in enumerate(("version", "topic_id"), 1):
        match = _LINE.fullmatch(lines[number - 1]) if number <= len(lines) else None
        if match is None or match[1] != name:
            found = repr(lines[number - 1]) if number <= len(lines) else "the end of the file"
            raise CorruptPartitionMetadata(f"{path}, line {number}: '{name}: ...' was expected, not {found}")
        values.append(match[2])
    if values[0] != str(VERSION):
        raise CorruptPartitionMetadata(f"{path}, line 1: version {values[0]} is not known, {VERSION} is")
    try:
        topic_id = Uuid.parse(values[1])
    except ValueError as error:
        raise CorruptPartitionMetadata(f"{path}, line 2: {error}") from None
    if topic_id == Uuid.ZERO:
        raise CorruptPartitionMetadata(f"{path}, line 2: the topic id is zero")
    return topic_id
