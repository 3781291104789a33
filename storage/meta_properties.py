"""`meta.properties`: which cluster and node a log directory belongs to, and the directory's own id (KIP-858).

A node that finds the file of another must not touch the directory. The file is Java properties; version 1,
which KRaft writes:

    node.id=1
    directory.id=q1Sh-9_ISia_zwGINzRvyQ
    version=1
    cluster.id=5L6g3nShT-eMCtK--X86sw
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from config.errors import ConfigError
from config.properties import parse_properties
from protocol.uuids import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Uuid
from storage.atomic_file import read_text, write_atomically
from storage.checkpoints import integer
from storage.disk import DISK, Disk

FILE_NAME = "meta.properties"
VERSION = 1

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# Escaped wherever they stand in a value, as is a blank at its start: what java.util.Properties.store does.
# The rest of Unicode becomes \uXXXX. Kafka 4.3.1 writes it as UTF-8 but reads it as ISO-8859-1, so that it cannot
# read its own file; the escapes are what both of us read.
_ESCAPES = {ord(char): "\\" + char for char in "\\=:#!"} | {9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}


class CorruptMetaProperties(Exception):
    """A meta.properties that cannot be understood; the message names the file and what is wrong in it."""


class MetaProperties(NamedTuple):
    """`directory_id` is None only in a file from before KIP-858; it is then to be given one."""

    cluster_id: str
    node_id: int
    directory_id: Uuid | None
    version: int = VERSION


def write_meta_properties(
    directory: str, properties: MetaProperties, *, written_at: float | None = None, ops: Disk = DISK
) -> None:
    """Replace the file, durably. `written_at` (seconds, default now) goes into the comment that Java adds."""
    when = time.gmtime(written_at)
    # Java's Date.toString, whatever the locale here. The empty comment before it is the one that Kafka passes.
    stamp = f"#{_DAYS[when.tm_wday]} {_MONTHS[when.tm_mon - 1]} {time.strftime('%d %H:%M:%S UTC %Y', when)}"
    lines = ["#", stamp, f"node.id={properties.node_id}"]
    if properties.directory_id is not None:
        lines.append(f"directory.id={properties.directory_id}")
    lines += [f"version={VERSION}", f"cluster.id={_escape(properties.cluster_id)}", ""]
    write_atomically(os.path.join(directory, FILE_NAME), "\n".join(lines).encode("ascii"), ops)


def _escape(value: str) -> str:
    escaped = ("\\" if value.startswith(" ") else "") + value.translate(_ESCAPES)
    return "".join(char if " " <= char <= "~" else _utf16(char) for char in escaped)


def _utf16(char: str) -> str:
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02X}{units[at + 1]:02X}" for at in range(0, len(units), 2))


def read_meta_properties(directory: str) -> MetaProperties | None:
    """What the directory's file says, None if there is none. Version 0, with broker.id, is read as well."""
    path = os.path.join(directory, FILE_NAME)
    text = read_text(path)
    if text is None:
        return None
    try:
        found = {found.name: (found.value, found.line) for found in parse_properties(text, path)}
    except ConfigError as error:
        raise CorruptMetaProperties(str(error)) from None

    def value(name: str) -> str:
        if name not in found:
            raise CorruptMetaProperties(f"{path}: {name} is missing")
        return found[name][0]

    def number(name: str) -> int:
        try:
            return integer(value(name))
        except ValueError as error:
            raise CorruptMetaProperties(f"{path}, line {found[name][1]}: {name}: {error}") from None

    version = number("version") if "version" in found else 0
    if version not in (0, VERSION):
        line = found["version"][1]
        raise CorruptMetaProperties(f"{path}, line {line}: version {version} is not known, {VERSION} is")
    node_id = number("node.id" if version else "broker.id")
    directory_id = None
    if "directory.id" in found:
        text, line = found["directory.id"]
        try:
            directory_id = Uuid.parse(text)
        except ValueError as error:
            raise CorruptMetaProperties(f"{path}, line {line}: directory.id: {error}") from None
        if directory_id in (DIRECTORY_UNASSIGNED, DIRECTORY_LOST, DIRECTORY_MIGRATING):
            raise CorruptMetaProperties(f"{path}, line {line}: directory.id {text} is reserved")
    # A character beyond the basic plane was written as two escapes, a surrogate pair: make it one again.
    cluster_id = value("cluster.id").encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return MetaProperties(cluster_id, node_id, directory_id, version)
