"""`*.snapshot`: the producers a partition knew at an offset, so that a restart need not read the whole log.

Kafka's ProducerSnapshot, version 1: version int16, CRC-32C uint32 over all that follows, then an array of
entries of 46 bytes. Only the last batch of a producer is kept, not all five that duplicates are looked for
in.

The name is the offset up to which the log had been read: `00000000000000000042.snapshot` has seen offset 41.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from crc32c import crc32c

from storage.disk import DISK, Disk

SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"  # Kafka's mark for files whose removal was decided and is delayed
VERSION = 1

_HEADER = Struct(">hIi")
_CRC_END = 6  # the checksum covers everything from here on
_ENTRY = Struct(">qhiqiqiq")
_NAME = re.compile(r"(\d{20})\.snapshot")


class CorruptSnapshot(Exception):
    """A snapshot that is torn, altered or of another version: an older one, or the log itself, has to do."""


class SnapshotEntry(NamedTuple):
    """One producer, in the order of the fields in the file. -1 stands for "none" in all but offset_delta."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int


def encode_snapshot(entries: Iterable[SnapshotEntry]) -> bytes:
    """The bytes of a snapshot file."""
    packed = [_ENTRY.pack(*entry) for entry in entries]
    data = bytearray(_HEADER.size)
    _HEADER.pack_into(data, 0, VERSION, 0, len(packed))
    data += b"".join(packed)
    data[2:_CRC_END] = crc32c(memoryview(data)[_CRC_END:]).to_bytes(4, "big")
    return bytes(data)


def decode_snapshot(data: bytes, name: str = "snapshot") -> list[SnapshotEntry]:
    """The entries of a snapshot file; `name` is for the error."""
    try:
        version, crc, count = _HEADER.unpack_from(data)
    except StructError:
        raise CorruptSnapshot(f"{name} has only {len(data)} bytes") from None
    if version != VERSION:
        raise CorruptSnapshot(f"{name} has version {version}, {VERSION} is known")
    if crc != crc32c(memoryview(data)[_CRC_END:]):
        raise CorruptSnapshot(f"{name} does not match its checksum")
    if count < 0 or _HEADER.size + count * _ENTRY.size != len(data):
        raise CorruptSnapshot(f"{name} promises {count} entries in {len(data)} bytes")
    return [SnapshotEntry(*fields) for fields in _ENTRY.iter_unpack(memoryview(data)[_HEADER.size :])]


def write_snapshot(path: str, entries: Iterable[SnapshotEntry], *, sync: bool = True, ops: Disk = DISK) -> None:
    """Write a snapshot file. Not atomically: a torn one does not match its checksum and is passed over."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        ops.pwrite(fd, encode_snapshot(entries), 0)
        if sync:
            ops.fdatasync(fd)
    finally:
        os.close(fd)


def read_snapshot(path: str) -> list[SnapshotEntry]:
    """The entries of a snapshot file. Raises CorruptSnapshot, FileNotFoundError."""
    with open(path, "rb") as file:
        return decode_snapshot(file.read(), path)


def sync_snapshot(path: str, ops: Disk = DISK) -> None:
    """Make a snapshot that was written without `sync` durable. Safe in a thread; gone already is fine."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        ops.fdatasync(fd)
    finally:
        os.close(fd)


def snapshot_path(directory: str, offset: int) -> str:
    return os.path.join(directory, f"{offset:020d}{SUFFIX}")


def list_snapshots(directory: str) -> dict[int, str]:
    """Paths of the snapshots in a partition's directory by offset, lowest first."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return {}
    found = {int(match[1]): os.path.join(directory, match[0]) for match in map(_NAME.fullmatch, names) if match}
    return dict(sorted(found.items()))
