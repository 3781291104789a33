"""All logs of a node, over all of its log directories: opening, creating, deleting, and a clean end.

A partition's directory is named `topic-N`. Deleting renames it to `topic-N.<32 hex digits>-delete`, so that the topic
may be created again at once, and removes it later. `__cluster_metadata-0` belongs to the controller and is left alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from config.broker import BrokerConfig
from config.topic import LogConfig
from protocol.uuids import Uuid
from storage.deletion import DelayedDeletions
from storage.disk import DISK, Disk, UnsyncedDisk
from storage.errors import StorageError
from storage.index import CorruptIndex
from storage.log import Log, wall_clock_ms
from storage.log_directory import LogDirectory
from storage.log_tasks import LogTasks
from storage.meta_properties import CorruptMetaProperties, read_meta_properties
from storage.partition_metadata import (
    CorruptPartitionMetadata,
    read_partition_metadata,
    write_partition_metadata,
)

METADATA_TOPIC = "__cluster_metadata"
DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
_MAX_NAME = 255  # what a file system takes
_PARTITION_DIR = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)")
_SET_ASIDE = re.compile(r".+\.[0-9a-f]{32}-(?:delete|future|stray)")

_log = logging.getLogger(__name__)


class _Found(NamedTuple):
    """A partition's directory that is to be opened."""

    log_dir: LogDirectory
    topic: str
    partition: int
    log_start_offset: int
    recovery_point: int
    high_watermark: int
    clean: bool


def set_aside_name(topic: str, partition: int, kind: str) -> str:
    """A unique name for a directory that is out of use; the topic is cut if the name would be too long."""
    suffix = f"-{partition}.{uuid.uuid4().hex}{kind}"
    return topic[: _MAX_NAME - len(suffix)] + suffix


class LogManager:
    """Owner of every `Log` of the node except the metadata log, and of their background tasks."""

    def __init__(self, config: BrokerConfig, *, disk: Disk = DISK, clock: Callable[[], int] = wall_clock_ms) -> None:
        self.config = config
        self.clock = clock
        self.directories: list[LogDirectory] = []
        self.deletions = DelayedDeletions(disk)
        self.on_directory_failure: Callable[[LogDirectory], None] | None = None
        self.previous_broker_epoch = -1
        self._disk = disk
        self._logs: dict[tuple[str, int], Log] = {}
        self._tasks = LogTasks(self)
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- start

    def open_directories(self) -> None:
        """Lock all log directories, before anyone writes to them; raises StorageError if none can be used."""
        try:
            for path in self.config.log_dirs:
                self._open_directory(path)
            if not any(directory.online for directory in self.directories):
                raise StorageError(f"None of the log.dirs can be used: {', '.join(self.config.log_dirs)}")
        except BaseException:
            self._unlock_all()
            raise

    def read_previous_broker_epoch(self) -> int:
        """The broker epoch of the last run if it ended cleanly, -1 otherwise."""
        found = [directory.read_clean_shutdown() for directory in self.directories if directory.online]
        return max((epoch for clean, epoch in found if clean), default=-1)

    async def start(self, topic_configs: Callable[[str], LogConfig]) -> None:
        """Open all logs in the directories, and the directories if that was not done yet."""
        self._loop = asyncio.get_running_loop()
        if not self.directories:
            self.open_directories()
        try:
            await self._load_all(topic_configs)
        except BaseException:
            self._unlock_all()
            raise
        self._tasks.start()

    def directory_at(self, path: str) -> LogDirectory | None:
        wanted = os.path.abspath(path)
        return next((directory for directory in self.directories if directory.path == wanted), None)

    def _unlock_all(self) -> None:
        for directory in self.directories:
            directory.unlock()

    def _open_directory(self, path: str) -> None:
        path = os.path.abspath(path)
        directory = LogDirectory(path, disk=self._disk)
        if any(os.path.realpath(path) == os.path.realpath(other.path) for other in self.directories):
            raise StorageError(f"log.dirs names {path} twice", path)
        self.directories.append(directory)
        directory.on_failure = self._on_failure
        try:
            os.makedirs(path, exist_ok=True)
            directory.lock()
            properties = read_meta_properties(path)
        except OSError as error:
            directory.fail(error, f"opening {path}")
            return
        except CorruptMetaProperties as error:
            raise StorageError(str(error), path) from None
        if properties is not None and properties.directory_id is not None:
            directory.directory_id = properties.directory_id

    async def _load_all(self, topic_configs: Callable[[str], LogConfig]) -> None:
        started_ms = self.clock()
        loop = asyncio.get_running_loop()
        found: list[_Found] = []
        for directory in self.directories:
            if directory.online:
                try:
                    found += self._list_directory(directory)
                except OSError as error:
                    directory.fail(error, f"reading {directory.path}")
        if not found:
            return
        threads = max(1, self.config.num_recovery_threads_per_data_dir) * len(self.directories)
        # Threads, so that the disks are busy while CRCs are computed; those let go of the interpreter lock.
        with ThreadPoolExecutor(threads, thread_name_prefix="log-recovery") as pool:
            futures = [loop.run_in_executor(pool, self._load, one, topic_configs(one.topic)) for one in found]
            for one, future in zip(found, futures, strict=True):
                try:
                    log = await future
                except OSError as error:
                    one.log_dir.fail(error, f"opening the log {one.topic}-{one.partition}")
                    continue
                if (log.topic, log.partition) in self._logs:
                    other = self._logs[log.topic, log.partition]
                    raise StorageError(
                        f"{log.name} is in two log directories, {other.log_dir.path} and {log.log_dir.path}: "
                        "remove the one that is out of date",
                        log.log_dir.path,
                    )
                log.advance_high_watermark(one.high_watermark)
                self._add(log)
        recovered = sum(not one.clean for one in found)
        _log.info(
            "Loaded %d logs in %d ms%s",
            len(found),
            self.clock() - started_ms,
            f", {recovered} of them after an unclean stop" if recovered else "",
        )

    def _list_directory(self, directory: LogDirectory) -> list[_Found]:
        clean, epoch = directory.take_clean_shutdown()
        if clean:
            self.previous_broker_epoch = max(self.previous_broker_epoch, epoch)
        recovery_points = directory.read_checkpoint(directory.recovery_points)
        start_offsets = directory.read_checkpoint(directory.log_start_offsets)
        high_watermarks = directory.read_checkpoint(directory.replication_offsets)
        found: list[_Found] = []
        with os.scandir(directory.path) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())
        for name in names:
            if name.endswith(DELETE_SUFFIX) and _SET_ASIDE.fullmatch(name):
                due_ms = self.clock() + self.config.log_segment_delete_delay_ms
                self.deletions.add(due_ms, [os.path.join(directory.path, name)])
                continue
            match = _PARTITION_DIR.fullmatch(name)
            if match is None or _SET_ASIDE.fullmatch(name):
                if not name.startswith(".") and not name.endswith(STRAY_SUFFIX):
                    _log.warning("%s in %s is not a partition's directory: ignored", name, directory.path)
                continue
            key = match[1], int(match[2])
            if key[0] != METADATA_TOPIC:
                offsets = start_offsets.get(key, 0), recovery_points.get(key, 0), high_watermarks.get(key, 0)
                found.append(_Found(directory, *key, *offsets, clean))
        return found

    def _load(self, found: _Found, config: LogConfig) -> Log:
        """In a thread of the pool; nobody else has the log yet."""
        path = os.path.join(found.log_dir.path, f"{found.topic}-{found.partition}")
        try:
            topic_id = read_partition_metadata(path) or Uuid.ZERO
        except CorruptPartitionMetadata as error:  # written again once the metadata says which topic it is
            _log.warning("%s", error)
            topic_id = Uuid.ZERO
        options = {"log_start_offset": found.log_start_offset, "recovery_point": found.recovery_point}
        try:
            return self._open_log(path, found, config, topic_id, clean=found.clean, **options)
        except CorruptIndex as error:
            _log.warning("%s-%d: %s; recovering the log", found.topic, found.partition, error)
            return self._open_log(path, found, config, topic_id, clean=False, log_start_offset=found[3])

    def _open_log(
        self,
        path: str,
        found: _Found,
        config: LogConfig,
        topic_id: Uuid,
        *,
        clean: bool,
        log_start_offset: int = 0,
        recovery_point: int = 0,
    ) -> Log:
        return Log.open(
            path,
            found.topic,
            found.partition,
            config,
            topic_id=topic_id,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean=clean,
            log_dir=found.log_dir,
            deletions=self.deletions,
            producer_id_expiration_ms=self.config.producer_id_expiration_ms,
            disk=self._disk,
            clock=self.clock,
        )

    # --- the logs

    def __iter__(self) -> Iterator[Log]:
        """All logs of this moment; logs may come and go while the caller iterates."""
        return iter(list(self._logs.values()))

    def get(self, topic: str, partition: int) -> Log | None:
        return self._logs.get((topic, partition))

    def logs_in(self, directory: LogDirectory) -> list[Log]:
        return [log for log in self._logs.values() if log.log_dir is directory]

    def _add(self, log: Log) -> None:
        log.on_roll = self._tasks.flush_soon
        self._logs[log.topic, log.partition] = log

    def create(self, topic: str, partition: int, topic_id: Uuid, config: LogConfig) -> Log:
        """A new log in the online directory that holds the fewest. Raises StorageError."""
        if (topic, partition) in self._logs:
            raise ValueError(f"{topic}-{partition} exists already")
        online = [directory for directory in self.directories if directory.online]
        cordoned = {os.path.abspath(path) for path in self.config.cordoned_log_dirs}
        choice = [directory for directory in online if directory.path not in cordoned] or online
        if not choice:
            raise StorageError("All log directories are offline")
        # With one directory, the usual case, nothing is counted: a topic of thousands of partitions is created here.
        directory = choice[0] if len(choice) == 1 else min(choice, key=lambda one: len(self.logs_in(one)))
        path = os.path.join(directory.path, f"{topic}-{partition}")
        try:
            log = self._open_log(
                path, _Found(directory, topic, partition, 0, 0, 0, False), config, topic_id, clean=False
            )
            self._write_topic_id(log)
        except OSError as error:
            raise StorageError(f"Creating the log {topic}-{partition} failed: {error}", directory.path) from error
        self._add(log)
        _log.info("Created the log %s in %s", log.name, directory.path)
        return log

    def assign_topic_id(self, log: Log, topic_id: Uuid) -> None:
        """Give a log whose partition.metadata was missing the id that the metadata has for its topic."""
        log.topic_id = topic_id
        try:
            self._write_topic_id(log)
        except OSError as error:
            raise StorageError(f"Writing the topic id of {log.name} failed: {error}", log.log_dir.path) from error

    def _write_topic_id(self, log: Log) -> None:
        """Not synced: a crash that loses it loses what the metadata log still knows, and a sync costs the loop."""
        if log.topic_id != Uuid.ZERO:
            write_partition_metadata(log.directory, log.topic_id, ops=UnsyncedDisk(self._disk))

    def delete(self, log: Log) -> None:
        """Out of sight at once, off the disk after file.delete.delay.ms."""
        target = self._take_out(log, DELETE_SUFFIX, "deleting")
        self.deletions.add(self.clock() + log.config.file_delete_delay_ms, [target])
        _log.info("The log %s was renamed to %s and is to be deleted", log.name, target)

    def set_aside(self, log: Log) -> None:
        """A log that the metadata does not know: kept under another name, for a person to look at and remove."""
        target = self._take_out(log, STRAY_SUFFIX, "setting aside")
        _log.warning("The log %s belongs to no partition of this node; it is kept as %s", log.name, target)

    def _take_out(self, log: Log, kind: str, doing: str) -> str:
        if self._logs.get((log.topic, log.partition)) is log:
            del self._logs[log.topic, log.partition]
        target = os.path.join(log.log_dir.path, set_aside_name(log.topic, log.partition, kind))
        try:
            log.move_to(target)
        except OSError as error:
            raise log.log_dir.fail(error, f"{doing} {log.name}") from error
        log.release()
        # The checkpoints must forget it before a topic of the same name is created and crashes.
        self._tasks.checkpoint_soon()
        return target

    def _on_failure(self, directory: LogDirectory) -> None:
        """From any thread: a failed sync is noticed in the thread that did it."""
        if self._loop is not None and self._loop.is_running():
            self._loop.call_soon_threadsafe(self._directory_failed, directory)
        else:
            self._directory_failed(directory)

    def _directory_failed(self, directory: LogDirectory) -> None:
        _log.error("%d logs in %s are offline", len(self.logs_in(directory)), directory.path)
        if self.on_directory_failure is not None:
            self.on_directory_failure(directory)

    # --- what the background tasks do, and tests call

    def apply_retention(self, now_ms: int, logs: Iterable[Log] | None = None) -> int:
        """Delete old segments; returns how many. A full disk must not stop it: deleting is the cure."""
        deleted = 0
        for log in list(self._logs.values()) if logs is None else logs:
            if log.log_dir.online:
                try:
                    deleted += log.delete_old_segments(now_ms)
                except StorageError as error:
                    _log.error("%s", error)
        return deleted

    def expire_producers(self, now_ms: int) -> int:
        return sum(log.producers.expire(now_ms) for log in self._logs.values())

    def recovery_points(self, directory: LogDirectory) -> dict[tuple[str, int], int]:
        return {(log.topic, log.partition): log.recovery_point for log in self.logs_in(directory)}

    def log_start_offsets(self, directory: LogDirectory) -> dict[tuple[str, int], int]:
        """Only those that the segments' names do not tell."""
        return {
            (log.topic, log.partition): log.log_start_offset
            for log in self.logs_in(directory)
            if log.log_start_offset > log.segments.first.base_offset
        }

    def high_watermarks(self, directory: LogDirectory) -> dict[tuple[str, int], int]:
        return {(log.topic, log.partition): log.high_watermark for log in self.logs_in(directory)}

    # --- end

    async def shutdown(self, broker_epoch: int = -1) -> None:
        """Sync and close all logs, write all checkpoints, and only then say that the stop was clean."""
        await self._tasks.stop()
        loop = asyncio.get_running_loop()
        for directory in self.directories:
            if directory.online:
                logs = self.logs_in(directory)
                for log in logs:
                    await log.wait_for_flush()
                await loop.run_in_executor(None, self._close_directory, directory, logs, broker_epoch)
            directory.unlock()
        self._logs.clear()

    def _close_directory(self, directory: LogDirectory, logs: list[Log], broker_epoch: int) -> None:
        """In a thread; the loop has stopped appending."""
        try:
            for log in logs:
                log.close()
            directory.write_checkpoint(directory.recovery_points, self.recovery_points(directory))
            directory.write_checkpoint(directory.log_start_offsets, self.log_start_offsets(directory))
            directory.write_checkpoint(directory.replication_offsets, self.high_watermarks(directory))
            directory.mark_clean_shutdown(broker_epoch)
        except (StorageError, OSError) as error:
            _log.error("%s was not closed cleanly and will be recovered at the next start: %s", directory.path, error)
