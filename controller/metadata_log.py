"""The metadata log on disk: ``__cluster_metadata-0``, its snapshots, and the voter's epoch.

What is appended counts when it is durable: the high watermark of a single voter follows its fsync. The latest
snapshot is the point from which the log is recovered and replayed, because a snapshot is only ever taken of what
was durable. Nothing here knows what the records mean, except those that describe the quorum itself.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
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
    voter_control_records,
    write_snapshot,
)
from controller.delta import MetadataError
from controller.image import MetadataImage
from controller.quorum_state import QuorumState, read_quorum_state, write_quorum_state
from controller.record_versions import record_version
from controller.retention import clean_up
from controller.snapshot_records import image_records
from controller.storage_format import METADATA_LOG_DIRECTORY, NodeDirectories
from controller.topic_names import CLUSTER_METADATA_TOPIC
from protocol.errors import ApiError, DecodeError, ErrorCode
from protocol.messages.kraft_version_record import KRaftVersionRecord
from protocol.messages.leader_change_message import LeaderChangeMessage, Voter
from protocol.messages.voters_record import VotersRecord
from protocol.metadata import decode_record, encode_record
from protocol.records import (
    BatchBuilder,
    ControlType,
    control_records_batch,
    iter_batches,
    iter_records,
    parse_control_key,
)
from protocol.schema import Message
from protocol.uuids import METADATA_TOPIC_ID
from storage.disk import DISK, Disk
from storage.errors import StorageError
from storage.log import Log, wall_clock_ms
from storage.log_directory import LogDirectory
from storage.partition_metadata import write_partition_metadata
from storage.results import AppendOrigin

_log = logging.getLogger(__name__)

READ_BYTES: Final = 4 << 20  # a replay reads the log in pieces of this size
# Bytes of one batch, Kafka's limit for the metadata log; a batch is applied as a whole and must fit into a fetch.
MAX_BATCH_BYTES: Final = 8 << 20


class LoggedBatch(NamedTuple):
    """One data batch as it is replayed."""

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
        self.epoch = 0
        self.kraft_version = 0
        self.voters: VotersRecord | None = None
        self.snapshot_id: SnapshotId | None = None
        self.bytes_since_snapshot = 0
        self._config = config
        self._disk = disk
        self._clock = clock
        self._log_dir = log_dir
        self._log: Log | None = None

    @property
    def log(self) -> Log:
        assert self._log is not None, "the metadata log is not open"
        return self._log

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    # Opening and replay

    def open(self) -> Snapshot | None:
        """Blocking. Recovers the log (a torn tail is cut) and returns the snapshot from which to replay."""
        os.makedirs(self.directory, exist_ok=True)
        remove_parts(self.directory, self._disk)
        snapshots = list_snapshots(self.directory)
        self.snapshot_id = snapshots[-1] if snapshots else None
        start = self.snapshot_id.end_offset if self.snapshot_id else 0
        if not os.path.exists(os.path.join(self.directory, "partition.metadata")):
            write_partition_metadata(self.directory, METADATA_TOPIC_ID, ops=self._disk)
        self._log = Log.open(
            self.directory,
            CLUSTER_METADATA_TOPIC,
            0,
            _log_config(self._config),
            topic_id=METADATA_TOPIC_ID,
            log_start_offset=0,
            recovery_point=start,
            log_dir=self._log_dir,
            disk=self._disk,
            clock=self._clock,
        )
        if self._log.log_end_offset < start:
            _log.warning(
                "The metadata log ends at %d, before its latest snapshot at %d: it goes on from the snapshot",
                self._log.log_end_offset,
                start,
            )
            self._log.truncate_fully_and_start_at(start)
        if self._log.log_start_offset > start:
            raise MetadataError(
                f"the metadata log in {self.directory} starts at offset {self._log.log_start_offset}, but no snapshot "
                f"holds what was before it (the latest ends at {start}). Restore the missing *.checkpoint file"
            )
        snapshot = None
        if self.snapshot_id is not None:
            snapshot = read_snapshot(os.path.join(self.directory, self.snapshot_id.file_name))
            self.kraft_version, self.voters = snapshot.kraft_version, snapshot.voters
        self.epoch = max(
            read_quorum_state(self.directory).leader_epoch,
            self.snapshot_id.epoch if self.snapshot_id else 0,
            self._log.leader_epochs.latest_epoch or 0,
        )
        return snapshot

    def replay(self) -> Iterator[LoggedBatch]:
        """Every data batch after the snapshot. What the control batches say of the quorum is taken in passing."""
        log = self.log
        offset = self.snapshot_id.end_offset if self.snapshot_id else log.log_start_offset
        end = log.log_end_offset
        while offset < end:
            piece = log.read(offset, READ_BYTES, end_offset=end).records
            if piece is None:
                raise MetadataError(f"the metadata log in {self.directory} cannot be read at offset {offset}")
            data = memoryview(piece.read())
            before = offset
            for position, header in iter_batches(data):
                if header.next_offset <= offset:
                    continue  # the batch before the snapshot's end, read because a read starts at an index entry
                batch = data[position : position + header.size]
                self.bytes_since_snapshot += header.size
                offset = header.next_offset
                try:
                    if header.is_control:
                        self._replay_control(batch)
                        continue
                    records = [decode_record(record.value or b"")[0] for record in iter_records(batch)]
                except DecodeError as error:
                    raise MetadataError(
                        f"the metadata log in {self.directory} cannot be applied at offset "
                        f"{header.base_offset}: {error}"
                    ) from None
                yield LoggedBatch(records, header.last_offset, header.partition_leader_epoch, header.max_timestamp)
            if offset == before:
                raise MetadataError(f"the metadata log in {self.directory} has no whole batch at offset {offset}")

    def _replay_control(self, batch: memoryview) -> None:
        for record in iter_records(batch):
            kind = parse_control_key(record.key)
            if kind is ControlType.KRAFT_VERSION:
                self.kraft_version = KRaftVersionRecord.decode(record.value or b"", 0).k_raft_version
            elif kind is ControlType.KRAFT_VOTERS:
                self.voters = VotersRecord.decode(record.value or b"", 0)

    # Leading

    def become_leader(self, voters: VotersRecord) -> None:
        """A new epoch, as a quorum of one elects itself: the vote is stored before the log shows the epoch.

        ``voters`` is the voter set with this node's present endpoints; it is written at the very start of a log and
        when it differs from what the log says.
        """
        self.epoch += 1
        node_id = self.node.node_id
        write_quorum_state(self.directory, QuorumState(leader_id=node_id, leader_epoch=self.epoch), self._disk)
        change = LeaderChangeMessage(
            version=0,
            leader_id=node_id,
            voters=[Voter(voter_id=voter.voter_id) for voter in voters.voters],
            granting_voters=[Voter(voter_id=node_id)],
        )
        records = [(ControlType.LEADER_CHANGE, change.encode(0))]
        if self.kraft_version > 0:
            announced = voter_control_records(self.kraft_version, voters)
            if self.log.log_end_offset == 0:
                records += announced
            elif voters != self.voters:
                records += announced[1:]
            self.voters = voters
        self._append(
            control_records_batch(records, self._clock(), self.epoch, self.log.log_end_offset),
        )

    def append(self, records: Sequence[Message], metadata_version: int, timestamp: int) -> None:
        """One batch: after a crash all of it is there or none. Durable only after ``flush``."""
        builder = BatchBuilder()
        for record in records:
            builder.append(timestamp, None, encode_record(record, record_version(record, metadata_version)))
        if builder.size > MAX_BATCH_BYTES:
            raise ApiError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"The total record(s) size of {builder.size} exceeds the maximum allowed batch size of "
                f"{MAX_BATCH_BYTES}",
            )
        self._append(builder.build(base_offset=self.log.log_end_offset, leader_epoch=self.epoch))

    def _append(self, batch: bytearray) -> None:
        self.log.append_as_leader(
            memoryview(batch),
            leader_epoch=self.epoch,
            now_ms=self._clock(),
            origin=AppendOrigin.RAFT_LEADER,
        )
        self.bytes_since_snapshot += len(batch)

    async def flush(self) -> None:
        """Return when all that is appended now is durable; the high watermark is then at least there."""
        end_offset = self.log.log_end_offset
        await self.log.flush()
        self.log.advance_high_watermark(end_offset)

    # Snapshots

    def write_snapshot(self, image: MetadataImage) -> SnapshotId:
        """Blocking; may run in a thread, because the image does not change and the file is new."""
        snapshot_id = SnapshotId(image.offset + 1, image.epoch)
        batches = snapshot_batches(
            image_records(image),
            metadata_version=image.features.metadata_version,
            epoch=image.epoch,
            now_ms=self._clock(),
            last_contained_timestamp=image.timestamp,
            kraft_version=self.kraft_version,
            voters=self.voters,
        )
        write_snapshot(os.path.join(self.directory, snapshot_id.file_name), batches, self._disk)
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
            disk=self._disk,
        )

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
