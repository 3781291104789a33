"""Checkpoint files: small text files, a version, a count, then one entry per line, replaced atomically.

    0
    2
    orders 0 1734
    orders 1 1689

Kafka keeps four of this kind in each log directory. A file that does not exist, or is empty, has no entries;
one that is malformed is an error that names the file and the line, because to go on as if it had no entries
could mean to recover, or to delete, the wrong offsets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from storage.atomic_file import read_text, write_atomically
from storage.disk import DISK, Disk

RECOVERY_POINT = "recovery-point-offset-checkpoint"
REPLICATION_OFFSET = "replication-offset-checkpoint"
LOG_START_OFFSET = "log-start-offset-checkpoint"
CLEANER_OFFSET = "cleaner-offset-checkpoint"

VERSION = 0
_WHITE_SPACE = re.compile(r"\s+")
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")

Entry = TypeVar("Entry")


class CorruptCheckpoint(Exception):
    """A checkpoint file that cannot be understood."""

    def __init__(self, path: str, line_number: int, what: str) -> None:
        super().__init__(f"{path}, line {line_number}: {what}")
        self.path = path
        self.line_number = line_number


def integer(text: str) -> int:
    """A decimal number as Java reads it; Python's int() would also take '1_000' and ' 1 '."""
    if not _INTEGER.fullmatch(text):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


class CheckpointFile(Generic[Entry]):
    """The frame that all checkpoint files share; a subclass says what a line holds."""

    __slots__ = ("_ops", "path")

    def __init__(self, path: str, *, ops: Disk = DISK) -> None:
        self.path = path
        self._ops = ops

    def format_entry(self, entry: Entry) -> str:
        raise NotImplementedError

    def parse_entry(self, fields: list[str]) -> Entry:
        """Raises ValueError if this is not an entry."""
        raise NotImplementedError

    def write_entries(self, entries: Iterable[Entry]) -> None:
        lines = [self.format_entry(entry) for entry in entries]
        text = "\n".join([str(VERSION), str(len(lines)), *lines, ""])
        write_atomically(self.path, text.encode(), self._ops)

    def read_entries(self) -> list[Entry]:
        lines = (read_text(self.path) or "").splitlines()
        if not lines:
            return []
        version = self._header(lines, 0, "the version")
        if version != VERSION:
            raise CorruptCheckpoint(self.path, 1, f"version {version} is not known, {VERSION} is")
        count = self._header(lines, 1, "the number of entries")
        entries = []
        for number, line in enumerate(lines[2:], 3):
            try:
                entries.append(self.parse_entry(_WHITE_SPACE.split(line)))
            except ValueError as error:
                raise CorruptCheckpoint(self.path, number, f"{line!r} is not an entry: {error}") from None
        if len(entries) != count:
            raise CorruptCheckpoint(self.path, 2, f"it promises {count} entries, {len(entries)} follow")
        return entries

    def _header(self, lines: list[str], index: int, what: str) -> int:
        try:
            return integer(lines[index])
        except IndexError:
            raise CorruptCheckpoint(self.path, index + 1, f"{what} is missing") from None
        except ValueError as error:
            raise CorruptCheckpoint(self.path, index + 1, f"{what} was expected: {error}") from None


class OffsetCheckpointFile(CheckpointFile[tuple[str, int, int]]):
    """One offset per topic partition."""

    __slots__ = ()

    def format_entry(self, entry: tuple[str, int, int]) -> str:
        return "{} {} {}".format(*entry)

    def parse_entry(self, fields: list[str]) -> tuple[str, int, int]:
        if len(fields) != 3:
            raise ValueError("a topic, a partition and an offset were expected")
        return fields[0], integer(fields[1]), integer(fields[2])

    def read(self) -> dict[tuple[str, int], int]:
        """Offsets by (topic, partition). Raises CorruptCheckpoint."""
        return {(topic, partition): offset for topic, partition, offset in self.read_entries()}

    def write(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Replace the file; durable on return. Blocks for two fsyncs: call it in a thread."""
        self.write_entries((topic, partition, offset) for (topic, partition), offset in offsets.items())
