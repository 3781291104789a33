"""The background work of a node's logs. Each task has one owner, `LogTasks`, which starts and ends it.

What a task does is a method of the log manager; here is only when. Every wait is for an event or a deadline, so a stop
is never waited for, and a task that is at work finishes its round: a half-written checkpoint has nobody to finish it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING

from storage.errors import StorageError

if TYPE_CHECKING:
    from storage.log import Log
    from storage.log_manager import LogManager

_LONGEST_WAIT_MS = 0x7FFFFFFF
"""24 days. Kafka's way of saying "never" is 2^63 - 1 ms, which no event loop takes."""

_log = logging.getLogger(__name__)


class LogTasks:
    """Retention, flushing by time, the three checkpoints, expiry of producers, delayed deletions."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._running: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._checkpoint_now = asyncio.Event()
        self._deletion_added = asyncio.Event()
        self._started = False
        self._checkpoint_lock = asyncio.Lock()  # two rounds must not write the same temporary file

    def start(self) -> None:
        self._started = True
        config = self._manager.config
        self._manager.deletions.on_added = self._deletion_added.set
        for what, interval_ms in (
            (self._retention, config.log_retention_check_interval_ms),
            (self._flush_due, config.log_flush_scheduler_interval_ms),
            (self._checkpoint_start_offsets, config.log_flush_start_offset_checkpoint_interval_ms),
            (self._checkpoint_high_watermarks, config.replica_high_watermark_checkpoint_interval_ms),
            (self._expire_producers, config.producer_id_expiration_check_interval_ms),
        ):
            self._spawn(self._every(interval_ms, what))
        self._spawn(
            self._every(
                config.log_flush_offset_checkpoint_interval_ms,
                self._checkpoint_recovery_points,
                self._checkpoint_now,
            )
        )
        self._spawn(self._delete_due())

    def flush_soon(self, log: Log) -> None:
        """A log was rolled: make the finished segment durable, so that recovery need not walk it again."""
        if self._started and not self._stopping.is_set():
            self._spawn(self._flush(log))

    def checkpoint_soon(self) -> None:
        self._checkpoint_now.set()

    async def stop(self) -> None:
        """End all tasks, letting each finish its round."""
        self._stopping.set()
        self._checkpoint_now.set()
        self._deletion_added.set()
        while self._running:
            await asyncio.wait(self._running)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("A background task of the logs failed", exc_info=task.exception())

    async def _every(
        self, interval_ms: int, work: Callable[[], Awaitable[None]], sooner: asyncio.Event | None = None
    ) -> None:
        """Do `work` once per interval, or when `sooner` is set, until the end."""
        wake = sooner or self._stopping
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(wake.wait(), min(interval_ms, _LONGEST_WAIT_MS) / 1000)
            if self._stopping.is_set():
                return
            if sooner is not None:
                sooner.clear()
            try:
                await work()
            except StorageError as error:
                _log.error("%s", error)
            except Exception:  # a task that ends is worse than a round that fails: retention must go on
                _log.exception("A background task of the logs failed; it goes on with its next round")

    # --- one round of each

    async def _retention(self) -> None:
        for log in list(self._manager):
            self._manager.apply_retention(self._manager.clock(), [log])
            await asyncio.sleep(0)  # thousands of logs are looked at between requests, not before them

    async def _flush_due(self) -> None:
        for log in list(self._manager):
            if log.log_dir.online and log.needs_flush(self._manager.clock()):
                await self._flush(log)

    async def _flush(self, log: Log) -> None:
        try:
            await log.flush()
        except StorageError as error:
            _log.error("%s: %s", log.name, error)

    async def _expire_producers(self) -> None:
        self._manager.expire_producers(self._manager.clock())

    async def _checkpoint_recovery_points(self) -> None:
        await self._checkpoint("recovery_points")
        await self._checkpoint("log_start_offsets")

    async def _checkpoint_start_offsets(self) -> None:
        await self._checkpoint("log_start_offsets")

    async def _checkpoint_high_watermarks(self) -> None:
        await self._checkpoint("replication_offsets")

    async def _checkpoint(self, kind: str) -> None:
        manager = self._manager
        loop = asyncio.get_running_loop()
        for directory in manager.directories:
            if not directory.online:
                continue
            if kind == "recovery_points":
                file, offsets = directory.recovery_points, manager.recovery_points(directory)
            elif kind == "log_start_offsets":
                file, offsets = directory.log_start_offsets, manager.log_start_offsets(directory)
            else:
                file, offsets = directory.replication_offsets, manager.high_watermarks(directory)
            async with self._checkpoint_lock:
                await loop.run_in_executor(None, directory.write_checkpoint, file, offsets)

    async def _delete_due(self) -> None:
        deletions = self._manager.deletions
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            self._deletion_added.clear()
            paths = deletions.take_due(self._manager.clock())
            if paths:
                await loop.run_in_executor(None, deletions.remove, paths)
            due_ms = deletions.next_due_ms
            wait_ms = _LONGEST_WAIT_MS if due_ms is None else max(0, due_ms - self._manager.clock())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._deletion_added.wait(), min(wait_ms, _LONGEST_WAIT_MS) / 1000)
