"""When snapshots are written: after so many bytes of log, or after so much time, whichever comes first."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable

from config.broker import BrokerConfig
from controller.checkpoint import BOOTSTRAP_FILE, SnapshotId, read_snapshot
from controller.features import bootstrap_feature_records, bootstrap_log_records
from controller.image import METADATA_VERSION_FEATURE, MetadataImage
from controller.metadata_log import MetadataLog
from controller.published import PublishedMetadata
from protocol.metadata.feature_level_record import FeatureLevelRecord
from protocol.schema import Message
from storage.errors import StorageError

_log = logging.getLogger(__name__)


class Snapshotter:
    """Owns the task that writes snapshots; the controller tells it when the image has moved."""

    def __init__(
        self,
        log: MetadataLog,
        config: BrokerConfig,
        *,
        clock: Callable[[], int],
        published: PublishedMetadata,
    ) -> None:
        self.bootstrap_level = 0
        self.on_written: Callable[[SnapshotId], None] = lambda snapshot_id: None
        """Told of every snapshot when it is in place and what it made superfluous is gone."""
        self._log = log
        self._max_bytes = config.metadata_log_max_record_bytes_between_snapshots
        self._interval_ms = config.metadata_log_max_snapshot_interval_ms
        self._min_insync_replicas = config.min_insync_replicas
        self._clock = clock
        self._published = published
        self._last_ms = clock()
        self._due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False

    def bootstrap_records(self, image: MetadataImage) -> list[Message]:
        """What a new cluster starts with; nothing once the log has a metadata.version."""
        if image.features.metadata_version:
            return []
        path = os.path.join(self._log.node.metadata_directory, BOOTSTRAP_FILE)
        bootstrap = read_snapshot(path).records if os.path.exists(path) else bootstrap_feature_records()
        for record in bootstrap:
            if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION_FEATURE:
                self.bootstrap_level = record.feature_level
        return bootstrap_log_records(bootstrap, self._min_insync_replicas)

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="metadata snapshots")
        self.on_progress()

    async def stop(self) -> None:
        """Returns when no thread uses the directory any more.

        The task is asked and not cancelled: before Python 3.12 `wait_for` swallows a cancellation that meets the
        event it waits for, and the stop would wait for ever.
        """
        task, self._task = self._task, None
        if task is not None:
            self._stopping = True
            self._due.set()
            await task

    def on_progress(self) -> None:
        if self._log.bytes_since_snapshot >= self._max_bytes:
            self._due.set()

    async def _run(self) -> None:
        while True:
            await self._wait()
            if self._stopping:
                return
            self._due.clear()
            if self._log.bytes_since_snapshot:
                await self.write()
            self._last_ms = self._clock()
            self._log.remove_deleted_files()

    async def _wait(self) -> None:
        if self._interval_ms <= 0:
            await self._due.wait()
            return
        remaining = self._last_ms + self._interval_ms - self._clock()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._due.wait(), max(remaining, 0) / 1000)

    async def write(self) -> None:
        """A snapshot of the latest committed image. A failure is logged and tried again when the next one is due.

        The log is synced first: recovery starts at the latest snapshot and takes what is before it as durable.
        """
        image, contained = self._published.image, self._log.bytes_since_snapshot
        latest = self._log.snapshot_id
        if self._published.in_transaction or (latest is not None and image.offset < latest.end_offset):
            return
        try:
            await self._log.flush()
            snapshot_id = await asyncio.to_thread(self._log.write_snapshot, image)
            if self._log.snapshot_id != latest:
                return  # the leader's snapshot replaced the log meanwhile
            self._log.on_snapshot_written(snapshot_id, contained)
        except (OSError, StorageError) as error:
            _log.error("The metadata snapshot at offset %d could not be written: %s", image.offset, error)
            return
        _log.info("Wrote the metadata snapshot %s", snapshot_id.file_name)
        self.on_written(snapshot_id)
