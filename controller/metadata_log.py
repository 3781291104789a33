"""The metadata log on disk: ``__cluster_metadata-0`` and its snapshots.

Whoever drives the quorum decides what is appended and cut; here are only the bytes. What is appended counts when it
is committed, so nothing is applied at start but the latest snapshot: the log after it is read again as the high
watermark passes over it. Nothing here knows what the records mean, except those that describe the quorum itself.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from config.broker import BrokerConfig
from config.topic import LogConfig
from controller.checkpoint import (
    Snapshot,
    SnapshotId,
    list_snapshots,
    read_snapshot,
    remove_parts,
    snapshot_batches,
    write_snapshot,
)
from controller.control_records import build_control_batch, parse_batches
from controller.delta import MetadataError
from controller.image import MetadataImage
from controller.raft.types import Batch, KRaftVersionChange, LogState, OffsetEpoch, VotersChange, VoterSet
from controller.record_versions import record_version
from controller.retention import clean_up
from controller.snapshot_records import image_records
from controller.storage_format import METADATA_LOG_DIRECTORY, NodeDirectories
from controller.topic_names import CLUSTER_METADATA_TOPIC
from controller.voters import from_record, to_record
from protocol.errors import ApiError, DecodeError, ErrorCode
from protocol.metadata import decode_record, encode_record
from protocol.records import BatchBuilder, iter_batches, iter_records
from protocol.schema import Message
from protocol.uuids import METADATA_TOPIC_ID
from storage.disk import DISK, Disk
from storage.errors import StorageError, UnexpectedAppendOffset
from storage.file_slice import FileSlice
from storage.log import Log, wall_clock_ms
from storage.log_directory import LogDirectory
from storage.partition_metadata import write_partition_metadata

_log = logging.getLogger(__name__)

READ_BYTES: Final = 1 << 20
"""The log is read back in pieces of this size: a few milliseconds of work each, so that a voter that catches up still
answers its peers in between."""
# Bytes of one batch, Kafka's limit for the metadata log; a batch is applied as a whole and must fit into a fetch.
MAX_BATCH_BYTES: Final = 8 << 20


class LoggedBatch(NamedTuple):
    """One batch as it is read back; a control batch has no records."""

    records: list[Message]
    last_offset: int
    epoch: int
    timestamp: int


class MetadataLog:
    def __init__(
        self,
        node: NodeDirectories,
        config: BrokerConfig,
        *,
        disk: Disk = DISK,
        clock: Callable[[], int] = wall_clock_ms,
        log_dir: LogDirectory | None = None,
    ) -> None:
        self.node = node
        self.directory = os.path.join(node.metadata_directory, METADATA_LOG_DIRECTORY)
        self.snapshot_id: SnapshotId | None = None
        self.bytes_since_snapshot = 0
        self.disk = disk
        self._config = config
        self._clock = clock
        self._log_dir = log_dir
        self._log: Log | None = None
        # (offset of the record, value), as the log has them, committed or not; a static quorum has none.
        self._voter_sets: list[tuple[int, VoterSet]] = []
        self._kraft_versions: list[tuple[int, int]] = []

    @property
    def log(self) -> Log:
        assert self._log is not None, "the metadata log is not open"
        return self._log

    @property
    def is_open(self) -> bool:
        return self._log is not None

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def is_online(self) -> bool:
        """False after a sync failed: what the disk holds is unknown, and only a restart can tell."""
        return self.log.log_dir.online

    def voters_at(self, offset: int) -> VoterSet | None:
        """The voter set that holds up to and including ``offset``, if the log says any."""
        return next((voters for at, voters in reversed(self._voter_sets) if at <= offset), None)

    def kraft_version_at(self, offset: int) -> int:
        return next((version for at, version in reversed(self._kraft_versions) if at <= offset), 0)

    @property
    def kraft_version(self) -> int:
        return self.kraft_version_at(self.log_end_offset)

    # Opening

    def open(self) -> Snapshot | None:
        """Blocking. Recovers the log (a torn tail is cut) and returns the snapshot from which to go on."""
        os.makedirs(self.directory, exist_ok=True)
        remove_parts(self.directory, self.disk)
        snapshots = list_snapshots(self.directory)
        self.snapshot_id = snapshots[-1] if snapshots else None
        start = self.snapshot_id or SnapshotId(0, 0)
        if not os.path.exists(os.path.join(self.directory, "partition.metadata")):
            write_partition_metadata(self.directory, METADATA_TOPIC_ID, ops=self.disk)
        log = self._log = Log.open(
            self.directory,
            CLUSTER_METADATA_TOPIC,
            0,
            _log_config(self._config),
            topic_id=METADATA_TOPIC_ID,
            log_start_offset=0,
            recovery_point=start.end_offset,
            log_dir=self._log_dir,
            gapless=True,
            disk=self.disk,
            clock=self._clock,
        )
        if log.log_end_offset < start.end_offset or (log.leader_epochs.latest_epoch or 0) < start.epoch:
            _log.warning(
                "The metadata log ends at %d in epoch %d, before its latest snapshot at %d in epoch %d: it goes on "
                "from the snapshot",
                log.log_end_offset,
                log.leader_epochs.latest_epoch or 0,
                start.end_offset,
                start.epoch,
            )
            log.truncate_fully_and_start_at(start.end_offset)
        if log.log_start_offset > start.end_offset:
            raise MetadataError(
                f"the metadata log in {self.directory} starts at offset {log.log_start_offset}, but no snapshot "
                f"holds what was before it (the latest ends at {start.end_offset}). Restore the missing *.checkpoint "
                "file"
            )
        snapshot = None
        if self.snapshot_id is not None:
            snapshot = read_snapshot(os.path.join(self.directory, self.snapshot_id.file_name))
        self._take_quorum_from(snapshot, start.end_offset - 1)
        self._scan(start.end_offset)
        return snapshot

    def _take_quorum_from(self, snapshot: Snapshot | None, offset: int) -> None:
        self._voter_sets, self._kraft_versions = [], []
        if snapshot is not None and snapshot.kraft_version > 0:
            self._kraft_versions.append((offset, snapshot.kraft_version))
        if snapshot is not None and snapshot.voters is not None:
            self._voter_sets.append((offset, from_record(snapshot.voters)))

    def _scan(self, offset: int) -> None:
        """A walk over the headers after the snapshot, for the control records and the size."""
        end = self.log_end_offset
        while offset < end:
            data, offset = self._read_whole_batches(offset, end)
            for position, header in iter_batches(data):
                self.bytes_since_snapshot += header.size
                if header.is_control:
                    self._note_control(_as_batch(data[position : position + header.size]))

    def _note_control(self, batch: Batch) -> None:
        for offset, record in enumerate(batch.control, batch.base_offset):
            if isinstance(record, VotersChange):
                self._voter_sets.append((offset, record.voters))
            elif isinstance(record, KRaftVersionChange):
                self._kraft_versions.append((offset, record.kraft_version))

    def log_state(self) -> LogState:
        """What the core starts from. The snapshot of nothing that formatting writes does not count as one."""
        latest = self.snapshot_id
        return LogState(
            start=self.start,
            end_offset=self.log_end_offset,
            epochs=tuple((entry.epoch, entry.start_offset) for entry in self.log.leader_epochs.entries),
            voter_sets=tuple(self._voter_sets),
            kraft_versions=tuple(self._kraft_versions),
            snapshot_id=OffsetEpoch(*latest) if latest is not None and latest.end_offset > 0 else None,
        )

    @property
    def start(self) -> OffsetEpoch:
        """Where the log begins, which is the end of a snapshot or the very beginning."""
        start = self.log.log_start_offset
        epochs = (one.epoch for one in list_snapshots(self.directory) if one.end_offset == start)
        return OffsetEpoch(start, max(epochs, default=0))

    # Reading

    def read(self, offset: int, max_bytes: int) -> FileSlice | None:
        """For a follower: whole batches and perhaps a cut one, as far as the log goes, committed or not."""
        if offset >= self.log_end_offset:
            return None
        return self.log.read(offset, max_bytes, end_offset=self.log_end_offset).records

    def read_committed(self, offset: int) -> tuple[list[LoggedBatch], int]:
        """A piece of the log from ``offset`` on, as far as it is committed, and where the next piece begins."""
        data, next_offset = self._read_whole_batches(offset, self.high_watermark)
        batches = []
        for position, header in iter_batches(data):
            records: list[Message] = []
            if not header.is_control:
                try:
                    batch = data[position : position + header.size]
                    records = [decode_record(record.value or b"")[0] for record in iter_records(batch)]
                except DecodeError as error:
                    raise MetadataError(
                        f"the metadata log in {self.directory} cannot be applied at offset "
                        f"{header.base_offset}: {error}"
                    ) from None
            batches.append(
                LoggedBatch(records, header.last_offset, header.partition_leader_epoch, header.max_timestamp)
            )
        return batches, next_offset

    def _read_whole_batches(self, offset: int, end: int) -> tuple[memoryview, int]:
        """The bytes of the batches in [offset, end), as many as fit into a piece, at least one."""
        size = READ_BYTES
        while True:
            piece = self.log.read(offset, size, end_offset=end).records
            if piece is None:
                raise MetadataError(f"the metadata log in {self.directory} cannot be read at offset {offset}")
            data = memoryview(piece.read())
            first, stop, next_offset = -1, 0, offset
            for position, header in iter_batches(data):
                if header.next_offset <= offset:
                    continue  # a batch before it, read because a read starts at an index entry
                first = position if first < 0 else first
                stop, next_offset = position + header.size, header.next_offset
            if first >= 0:
                return data[first:stop], next_offset
            if size >= 2 * MAX_BATCH_BYTES:
                raise MetadataError(f"the metadata log in {self.directory} has no whole batch at offset {offset}")
            size = 2 * MAX_BATCH_BYTES

    # Writing

    def encode(self, records: Sequence[Message], metadata_version: int, timestamp: int, epoch: int) -> bytearray:
        """One batch for the end of the log: after a crash all of it is there or none."""
        builder = BatchBuilder()
        for record in records:
            builder.append(timestamp, None, encode_record(record, record_version(record, metadata_version)))
        if builder.size > MAX_BATCH_BYTES:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"The total record(s) size of {builder.size} exceeds the maximum allowed batch size of "
                f"{MAX_BATCH_BYTES}",
            )
        return builder.build(base_offset=self.log_end_offset, leader_epoch=epoch)

    def append(self, batch: Batch) -> None:
        """To the end of the log. Durable only after ``flush``. StorageError: nothing was appended."""
        data = batch.payload
        if data is None:
            data = build_control_batch(batch, self._clock())
        assert isinstance(data, (bytes, bytearray, memoryview))
        try:
            self.log.append_as_follower(memoryview(data))
        except (ApiError, UnexpectedAppendOffset) as error:
            raise StorageError(f"a batch does not continue the metadata log: {error}", self.directory) from error
        self.bytes_since_snapshot += len(data)
        self._note_control(batch)

    def truncate_to(self, end_offset: int) -> None:
        """Cut what the leader does not have."""
        self.log.truncate_to(end_offset)
        self._voter_sets = [one for one in self._voter_sets if one[0] < end_offset]
        self._kraft_versions = [one for one in self._kraft_versions if one[0] < end_offset]

    async def flush(self) -> int:
        """Return when all that is appended now is durable, and where that ends."""
        log, end_offset = self.log, self.log_end_offset
        await log.flush()
        return min(end_offset, log.recovery_point)  # less if the log was cut meanwhile

    # Snapshots

    def write_snapshot(self, image: MetadataImage) -> SnapshotId:
        """Blocking; may run in a thread, because the image does not change and the file is new."""
        snapshot_id = SnapshotId(image.offset + 1, image.epoch)
        voters = self.voters_at(image.offset)
        batches = snapshot_batches(
            image_records(image),
            metadata_version=image.features.metadata_version,
            epoch=image.epoch,
            now_ms=self._clock(),
            last_contained_timestamp=image.timestamp,
            kraft_version=self.kraft_version_at(image.offset),
            voters=None if voters is None else to_record(voters),
        )
        write_snapshot(os.path.join(self.directory, snapshot_id.file_name), batches, self.disk)
        return snapshot_id

    def on_snapshot_written(self, snapshot_id: SnapshotId, bytes_contained: int) -> None:
        """``bytes_contained`` is what ``bytes_since_snapshot`` was when the snapshot was begun."""
        self.snapshot_id = snapshot_id
        self.bytes_since_snapshot -= bytes_contained
        clean_up(
            self.log,
            self.directory,
            max_bytes=self._config.metadata_max_retention_bytes,
            max_age_ms=self._config.metadata_max_retention_ms,
            now_ms=self._clock(),
            disk=self.disk,
        )

    def start_from(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        """A snapshot of the leader's is in place: the log before it means nothing any more."""
        self.log.truncate_fully_and_start_at(snapshot_id.end_offset)
        self.log.advance_high_watermark(snapshot_id.end_offset)
        self.snapshot_id = snapshot_id
        self.bytes_since_snapshot = 0
        self._take_quorum_from(snapshot, snapshot_id.end_offset - 1)

    def remove_deleted_files(self) -> None:
        self.log.deletions.run_due(self._clock())

    async def close(self) -> None:
        log, self._log = self._log, None
        if log is not None:
            await log.wait_for_flush()
            try:
                log.close()
            except StorageError as error:  # its directory went offline; what is acknowledged was synced before
                _log.error("The metadata log is closed without a last sync: %s", error)
                log.release()


def _as_batch(data: memoryview) -> Batch:
    try:
        return parse_batches(data)[0]
    except DecodeError as error:
        raise MetadataError(f"a control record of the metadata log cannot be read: {error}") from None


def _log_config(config: BrokerConfig) -> LogConfig:
    """Retention is off: segments go when snapshots stand for them, not when they are old."""
    return replace(
        LogConfig.defaults(),
        segment_bytes=config.internal_metadata_log_segment_bytes or config.metadata_log_segment_bytes,
        segment_ms=config.metadata_log_segment_ms,
        max_message_bytes=MAX_BATCH_BYTES,
        retention_ms=-1,
        retention_bytes=-1,
        file_delete_delay_ms=config.internal_metadata_delete_delay_millis,
    )
