"""Snapshots of the metadata log: ``<end offset>-<epoch>.checkpoint``, and ``bootstrap.checkpoint``.

A snapshot stands for every record below its end offset. It is a file of batches: first a control batch with the
snapshot header and the voters, then the records, last a control batch with the footer, without which the file is
not complete. It becomes visible by a rename after it is durable, and is never changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from controller.delta import MetadataError
from controller.record_versions import record_version
from protocol.errors import DecodeError
from protocol.messages.kraft_version_record import KRaftVersionRecord
from protocol.messages.snapshot_footer_record import SnapshotFooterRecord
from protocol.messages.snapshot_header_record import SnapshotHeaderRecord
from protocol.messages.voters_record import VotersRecord
from protocol.metadata import decode_record, encode_record
from protocol.records import (
    BatchBuilder,
    ControlType,
    check_crc,
    control_records_batch,
    iter_batches,
    iter_records,
    parse_control_key,
)
from protocol.schema import Message
from storage.disk import DISK, Disk

BOOTSTRAP_FILE: Final = "bootstrap.checkpoint"
PART_SUFFIX: Final = ".part"
_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
# Well below Kafka's limit of 8 MiB a batch, and few enough that a reader's memory does not notice.
MAX_BATCH_BYTES: Final = 1 << 20

_HEAD_BYTES: Final = 64 << 10  # holds the first batch, whatever the number of voters


class SnapshotId(NamedTuple):
    """``end_offset`` is exclusive: the first offset that the snapshot does not contain."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


class Snapshot(NamedTuple):
    records: list[Message]
    last_contained_timestamp: int
    kraft_version: int
    voters: VotersRecord | None


def list_snapshots(directory: str) -> list[SnapshotId]:
    """Complete snapshots, oldest first."""
    found = (_NAME.fullmatch(name) for name in os.listdir(directory))
    return sorted(SnapshotId(int(match[1]), int(match[2])) for match in found if match)


def remove_parts(directory: str, disk: Disk = DISK) -> None:
    """Snapshots that a crash left unfinished."""
    for name in os.listdir(directory):
        if name.endswith(".checkpoint" + PART_SUFFIX):
            disk.unlink(os.path.join(directory, name))


def snapshot_batches(
    records: Iterable[Message],
    *,
    metadata_version: int,
    epoch: int,
    now_ms: int,
    last_contained_timestamp: int,
    kraft_version: int,
    voters: VotersRecord | None,
) -> Iterator[bytes]:
    """The content of a snapshot. Its own offsets count from 0; those of the log are in its name."""
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_timestamp)
    head = [(ControlType.SNAPSHOT_HEADER, header.encode(0))]
    if kraft_version > 0 and voters is not None:
        head += voter_control_records(kraft_version, voters)
    yield bytes(control_records_batch(head, now_ms, epoch, 0))
    offset = len(head)
    builder = BatchBuilder()
    for record in records:
        if builder.size >= MAX_BATCH_BYTES:
            yield bytes(builder.build(base_offset=offset, leader_epoch=epoch))
            offset += len(builder)
            builder = BatchBuilder()
        builder.append(now_ms, None, encode_record(record, record_version(record, metadata_version)))
    if len(builder):
        yield bytes(builder.build(base_offset=offset, leader_epoch=epoch))
        offset += len(builder)
    footer = SnapshotFooterRecord(version=0).encode(0)
    yield bytes(control_records_batch([(ControlType.SNAPSHOT_FOOTER, footer)], now_ms, epoch, offset))


def voter_control_records(kraft_version: int, voters: VotersRecord) -> list[tuple[ControlType, bytes]]:
    version = KRaftVersionRecord(version=0, k_raft_version=kraft_version)
    return [
        (ControlType.KRAFT_VERSION, version.encode(0)),
        (ControlType.KRAFT_VOTERS, voters.encode(0)),
    ]


def write_snapshot(path: str, batches: Iterable[bytes], disk: Disk = DISK) -> None:
    """Blocking: written, synced, made read-only, renamed."""
    part = path + PART_SUFFIX
    if os.path.exists(part):
        disk.unlink(part)
    fd = disk.open(part, create=True)
    try:
        position = 0
        for batch in batches:
            disk.pwrite(fd, batch, position)
            position += len(batch)
        disk.fdatasync(fd)
        os.fchmod(fd, 0o400)
    finally:
        disk.close(fd)
    disk.rename(part, path)
    disk.fsync_dir(os.path.dirname(path) or ".")


def read_snapshot(path: str) -> Snapshot:
    """All of it, checked. A damaged snapshot is refused: the records it stands for are nowhere else."""
    with open(path, "rb") as file:
        data = file.read()
    try:
        return _parse(data)
    except DecodeError as error:
        raise MetadataError(
            f"the metadata snapshot {path} is damaged: {error}. It is not skipped, because the log before it may be "
            "gone; restore the file from a backup or another voter"
        ) from None


def last_contained_timestamp(path: str) -> int | None:
    """The time of the last record that a snapshot stands for, from its header; None if that cannot be read."""
    with open(path, "rb") as file:
        head = file.read(_HEAD_BYTES)
    try:
        for position, header in iter_batches(head):
            for record in iter_records(head[position : position + header.size]):
                if header.is_control and parse_control_key(record.key) is ControlType.SNAPSHOT_HEADER:
                    return SnapshotHeaderRecord.decode(record.value or b"", 0).last_contained_log_timestamp
            break
    except DecodeError:
        pass
    return None


def _parse(data: bytes) -> Snapshot:
    records: list[Message] = []
    timestamp: int | None = None
    kraft_version = 0
    voters: VotersRecord | None = None
    complete = False
    end = 0
    view = memoryview(data)
    for position, header in iter_batches(data):
        end = position + header.size
        batch = view[position:end]
        if complete:
            raise DecodeError("there are batches after its footer")
        if not check_crc(batch):
            raise DecodeError(f"the batch at position {position} fails its checksum")
        for record in iter_records(batch):
            if not header.is_control:
                records.append(decode_record(record.value or b"")[0])
                continue
            kind = parse_control_key(record.key)
            value = record.value or b""
            if kind is ControlType.SNAPSHOT_HEADER:
                timestamp = SnapshotHeaderRecord.decode(value, 0).last_contained_log_timestamp
            elif kind is ControlType.SNAPSHOT_FOOTER:
                complete = True
            elif kind is ControlType.KRAFT_VERSION:
                kraft_version = KRaftVersionRecord.decode(value, 0).k_raft_version
            elif kind is ControlType.KRAFT_VOTERS:
                voters = VotersRecord.decode(value, 0)
    if timestamp is None:
        raise DecodeError("it has no header record")
    if not complete or end != len(data):
        raise DecodeError("it ends before its footer record")
    return Snapshot(records, timestamp, kraft_version, voters)
