"""All logs of a node, over all of its log directories: opening, creating, moving, deleting, and a clean end.

A partition's directory is named `topic-N`. Deleting renames it to `topic-N.<32 hex digits>-delete`, so that the topic
may be created again at once, and removes it later. A replica that moves to another log directory is copied there as
`topic-N.<32 hex digits>-future`, until the copy is complete and takes the place of the log in use.
`__cluster_metadata-0` belongs to the controller and is left alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from config.broker import BrokerConfig
from config.topic import LogConfig
from protocol.uuids import Uuid
from storage.deletion import DelayedDeletions
from storage.disk import DISK, Disk, UnsyncedDisk
from storage.errors import StorageError
from storage.index import CorruptIndex
from storage.log import Log, wall_clock_ms
from storage.log_directory import LogDirectory, epoch_of_clean_stop
from storage.log_loading import AssignedDirectory, FoundLog, choose, find_logs, read_topic_id
from storage.log_names import DELETE_SUFFIX, STRAY_SUFFIX, future_name, set_aside_name
from storage.log_tasks import LogTasks
from storage.meta_properties import CorruptMetaProperties, read_meta_properties
from storage.partition_metadata import write_partition_metadata

_log = logging.getLogger(__name__)


class LogManager:
    """Owner of every `Log` of the node except the metadata log, and of their background tasks."""

    def __init__(self, config: BrokerConfig, *, disk: Disk = DISK, clock: Callable[[], int] = wall_clock_ms) -> None:
        self.config = config
        self.clock = clock
        self.directories: list[LogDirectory] = []
        self.deletions = DelayedDeletions(disk)
        self.on_directory_failure: Callable[[LogDirectory], None] | None = None
        self._disk = disk
        self._logs: dict[tuple[str, int], Log] = {}
        self._futures: dict[tuple[str, int], Log] = {}
        self.preferred: dict[tuple[str, int], LogDirectory] = {}
        """Where someone wants a log that is to be created, or its copy; forgotten when it is there, or at a restart."""
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
        return epoch_of_clean_stop(one.read_clean_shutdown() if one.online else None for one in self.directories)

    async def start(
        self, topic_configs: Callable[[str], LogConfig], assigned: AssignedDirectory = lambda topic, partition: None
    ) -> None:
        """Open all logs in the directories, and the directories if that was not done yet."""
        self._loop = asyncio.get_running_loop()
        if not self.directories:
            self.open_directories()
        try:
            await self._load_all(topic_configs, assigned)
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

    async def _load_all(self, topic_configs: Callable[[str], LogConfig], assigned: AssignedDirectory) -> None:
        started_ms = self.clock()
        loop = asyncio.get_running_loop()
        found: list[FoundLog] = []
        for directory in self.directories:
            if directory.online:
                try:
                    found += self._find_logs(directory)
                except OSError as error:
                    directory.fail(error, f"reading {directory.path}")
        if not found:
            return
        threads = max(1, self.config.num_recovery_threads_per_data_dir) * len(self.directories)
        loaded: dict[tuple[str, int, bool], list[Log]] = defaultdict(list)
        # Threads, so that the disks are busy while CRCs are computed; those let go of the interpreter lock.
        with ThreadPoolExecutor(threads, thread_name_prefix="log-recovery") as pool:
            futures = [loop.run_in_executor(pool, self._load, one, topic_configs(one.topic)) for one in found]
            for one, future in zip(found, futures, strict=True):
                try:
                    log = await future
                except OSError as error:
                    one.log_dir.fail(error, f"opening the log {one.topic}-{one.partition}")
                    continue
                log.advance_high_watermark(one.high_watermark)
                loaded[one.topic, one.partition, one.is_future].append(log)
        for (topic, partition, is_future), logs in loaded.items():
            chosen, others = choose(logs, assigned(topic, partition), is_future=is_future)
            for other in others:
                self.set_aside(other)
            self._add(chosen, is_future=is_future)
        recovered = sum(not one.clean for one in found)
        _log.info(
            "Loaded %d logs in %d ms%s",
            len(found),
            self.clock() - started_ms,
            f", {recovered} of them after an unclean stop" if recovered else "",
        )

    def _find_logs(self, directory: LogDirectory) -> list[FoundLog]:
        clean, _ = directory.take_clean_shutdown()
        due_ms = self.clock() + self.config.log_segment_delete_delay_ms
        return find_logs(directory, clean=clean, on_deleted=lambda path: self.deletions.add(due_ms, [path]))

    def _load(self, found: FoundLog, config: LogConfig) -> Log:
        """In a thread of the pool; nobody else has the log yet."""
        topic_id = read_topic_id(found.path)
        try:
            return self._open_log(found, config, topic_id)
        except CorruptIndex as error:
            _log.warning("%s-%d: %s; recovering the log", found.topic, found.partition, error)
            return self._open_log(found._replace(clean=False, recovery_point=0), config, topic_id)

    def _open_log(self, found: FoundLog, config: LogConfig, topic_id: Uuid) -> Log:
        return Log.open(
            found.path,
            found.topic,
            found.partition,
            config,
            topic_id=topic_id,
            log_start_offset=found.log_start_offset,
            recovery_point=found.recovery_point,
            clean=found.clean,
            log_dir=found.log_dir,
            deletions=self.deletions,
            producer_id_expiration_ms=self.config.producer_id_expiration_ms,
            disk=self._disk,
            clock=self.clock,
        )

    # --- the logs

    def __iter__(self) -> Iterator[Log]:
        """All logs of this moment, future ones too; logs may come and go while the caller iterates."""
        return iter([*self._logs.values(), *self._futures.values()])

    def get(self, topic: str, partition: int) -> Log | None:
        return self._logs.get((topic, partition))

    def future(self, topic: str, partition: int) -> Log | None:
        """The copy of a log that is on its way to another directory."""
        return self._futures.get((topic, partition))

    def logs_in(self, directory: LogDirectory) -> list[Log]:
        return [log for log in self if log.log_dir is directory]

    def _add(self, log: Log, *, is_future: bool = False) -> None:
        log.on_roll = self._tasks.flush_soon
        (self._futures if is_future else self._logs)[log.topic, log.partition] = log

    def create(
        self, topic: str, partition: int, topic_id: Uuid, config: LogConfig, directory_id: Uuid | None = None
    ) -> Log:
        """A new log: where someone asked for it, where the metadata has it, or in the online directory that holds the
        fewest. Raises StorageError."""
        if (topic, partition) in self._logs:
            raise ValueError(f"{topic}-{partition} exists already")
        directory = self.preferred.get((topic, partition)) or self._choose_directory(directory_id)
        if not directory.online:
            raise directory.offline_error()
        log = self._create(FoundLog(directory, f"{topic}-{partition}", topic, partition), config, topic_id)
        _log.info("Created the log %s in %s", log.name, directory.path)
        return log

    def create_future(self, log: Log, directory: LogDirectory) -> Log:
        """An empty log in another directory, to become a copy of this one. Raises StorageError."""
        if (log.topic, log.partition) in self._futures or directory is log.log_dir:
            raise ValueError(f"{log.name} has a future log already, or is in {directory.path}")
        name = future_name(log.topic, log.partition)
        found = FoundLog(directory, name, log.topic, log.partition, is_future=True)
        return self._create(found, log.config, log.topic_id)

    def _create(self, found: FoundLog, config: LogConfig, topic_id: Uuid) -> Log:
        try:
            log = self._open_log(found, config, topic_id)
            self._write_topic_id(log)
        except OSError as error:
            raise StorageError(f"Creating the log {found.name} failed: {error}", found.log_dir.path) from error
        self._add(log, is_future=found.is_future)
        self.preferred.pop((log.topic, log.partition), None)
        return log

    def _choose_directory(self, directory_id: Uuid | None) -> LogDirectory:
        online = [directory for directory in self.directories if directory.online]
        for directory in online:
            if directory_id is not None and directory.directory_id == directory_id:
                return directory
        choice = [directory for directory in online if not self.config.is_cordoned(directory.path)] or online
        if not choice:
            raise StorageError("All log directories are offline")
        # With one directory, the usual case, nothing is counted: a topic of thousands of partitions is created here.
        return choice[0] if len(choice) == 1 else min(choice, key=lambda one: len(self.logs_in(one)))

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

    def promote(self, future: Log) -> None:
        """The future log takes the place of the log in use, if there is one, under its name.

        The old one goes first. After a crash between the two renames there is a future log alone, which the next start
        promotes, because the metadata names its directory by now. Raises StorageError; then the old one is in use.
        """
        key = future.topic, future.partition
        old = self._logs.get(key)
        if old is not None:
            home = old.directory
            target = os.path.join(old.log_dir.path, set_aside_name(*key, DELETE_SUFFIX))
            self._rename(old, target)
        try:
            self._rename(future, os.path.join(future.log_dir.path, future.name))
        except StorageError:
            if old is not None:
                self._rename(old, home)
            raise
        del self._futures[key]
        self._logs[key] = future
        if old is not None:
            old.successor = future
            old.release()
            self.deletions.add(self.clock() + old.config.file_delete_delay_ms, [target])
        self._tasks.checkpoint_soon()

    def _rename(self, log: Log, target: str) -> None:
        try:
            log.move_to(target)
        except OSError as error:
            raise log.log_dir.fail(error, f"renaming {log.directory} to {target}") from error

    async def sync_names(self, directories: Iterable[LogDirectory]) -> None:
        """Make what was renamed durable. A failure takes the directory offline."""
        for directory in directories:
            try:
                await asyncio.to_thread(self._disk.fsync_dir, directory.path)
            except OSError as error:
                raise directory.fail(error, f"syncing {directory.path}") from error

    def forget_future(self, future: Log) -> None:
        """Its directory is offline; what is there is left to the next start."""
        if self._futures.get((future.topic, future.partition)) is future:
            del self._futures[future.topic, future.partition]
            future.release()

    def _take_out(self, log: Log, kind: str, doing: str) -> str:
        key = log.topic, log.partition
        for logs in (self._logs, self._futures):
            if logs.get(key) is log:
                del logs[key]
        target = os.path.join(log.log_dir.path, set_aside_name(*key, kind))
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
        for log in self if logs is None else logs:
            if log.log_dir.online:
                try:
                    deleted += log.delete_old_segments(now_ms)
                except StorageError as error:
                    _log.error("%s", error)
        return deleted

    def expire_producers(self, now_ms: int) -> int:
        return sum(log.producers.expire(now_ms) for log in self)

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
        self._futures.clear()

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
