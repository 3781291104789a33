"""Making a log durable: which files to sync, off the event loop, once for all who wait.

Recovery after a crash starts at the recovery point, so everything below it must be on the disk: records, indexes of
finished segments, leader epochs, and the names of the files. The indexes of the active segment are left out, because
its segment is walked again after every crash; one fdatasync then makes an append durable.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from storage.disk import Disk
from storage.errors import StorageError
from storage.leader_epochs import LeaderEpochCache
from storage.log_directory import LogDirectory
from storage.segment import Segment
from storage.segments import Segments


class LogSync:
    """Owner of a log's recovery point: all below it survives a power failure. It falls only by truncation."""

    __slots__ = (
        "_cut_unsynced",
        "_cuts",
        "_directory",
        "_disk",
        "_leader_epochs",
        "_log_dir",
        "_running",
        "_segments",
        "names_changed",
        "recovery_point",
    )

    def __init__(
        self,
        directory: str,
        log_dir: LogDirectory,
        segments: Segments,
        leader_epochs: LeaderEpochCache,
        recovery_point: int,
        disk: Disk,
    ) -> None:
        self.recovery_point = recovery_point
        self.names_changed = True  # a new log's own name is in its parent's directory
        self._directory = directory
        self._log_dir = log_dir
        self._segments = segments
        self._leader_epochs = leader_epochs
        self._disk = disk
        self._running: asyncio.Task[None] | None = None
        self._cuts = 0
        self._cut_unsynced = False

    def on_truncated(self, end_offset: int) -> None:
        """The log now ends at `end_offset`; a sync under way no longer says anything about what comes after."""
        self._cuts += 1
        self._cut_unsynced = self.names_changed = True  # or a power failure would bring the cut records back
        self.recovery_point = min(self.recovery_point, end_offset)

    def move_to(self, directory: str) -> None:
        self._directory = directory
        self.names_changed = True

    async def sync(self, end_offset: Callable[[], int]) -> None:
        """Return once all that is in the log now is durable; raise StorageError if that cannot be had.

        One sync runs at a time. Whoever comes while it runs waits for the next one, together with all others.
        """
        target = end_offset()
        while self._cut_unsynced or self.recovery_point < min(target, end_offset()):
            running = self._running
            # One that is done has its callbacks still to come: waiting for it would not even yield to the loop.
            if running is None or running.done():
                # What to sync and what that proves are decided here, not when the task gets its turn: a truncation
                # may come between.
                work = self._run(end_offset(), self._cuts, self._work())
                running = self._running = asyncio.create_task(work)
                running.add_done_callback(self._done)
            await asyncio.shield(running)
        if not self._log_dir.online:
            raise self._log_dir.offline_error()

    def _done(self, task: asyncio.Task[None]) -> None:
        if self._running is task:
            self._running = None
        if not task.cancelled():
            task.exception()  # whoever waited has it; nobody may have waited to the end

    async def _run(self, end_offset: int, cuts: int, work: list[Callable[[], None]]) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._perform, work)
        if cuts == self._cuts:
            self.recovery_point = max(self.recovery_point, end_offset)

    def sync_blocking(self, end_offset: int) -> None:
        """The same in this thread, for the end of the process and for tools."""
        if self.recovery_point < end_offset or self.names_changed or self._leader_epochs.dirty or self._cut_unsynced:
            self._perform(self._work())
            self.recovery_point = max(self.recovery_point, end_offset)

    async def drain(self) -> None:
        """Wait for a sync under way, whatever becomes of it: its thread holds our descriptors."""
        if self._running is not None:
            with contextlib.suppress(StorageError):
                await asyncio.shield(self._running)

    def _work(self) -> list[Callable[[], None]]:
        """What to call, in order, decided on the loop so that the thread touches no list of ours."""
        self._cut_unsynced = False
        unsynced: list[Segment] = self._segments.covering(self.recovery_point)
        work: list[Callable[[], None]] = [segment.sync_files for segment in unsynced[:-1]]
        active = unsynced[-1].file
        work.append(lambda: self._disk.fdatasync(active.fileno()))
        if self._leader_epochs.dirty:
            work.append(self._leader_epochs.flush)
        if self.names_changed:
            self.names_changed = False
            directory, parent = self._directory, self._log_dir.path
            work.append(lambda: self._disk.fsync_dir(directory))
            work.append(lambda: self._disk.fsync_dir(parent))
        return work

    def _perform(self, work: list[Callable[[], None]]) -> None:
        if not self._log_dir.online:
            raise self._log_dir.offline_error()
        try:
            for step in work:
                # Gone: retention or a deletion of the topic was faster, and nobody needs it durable any more.
                with contextlib.suppress(FileNotFoundError):
                    step()
        except OSError as error:
            # After a failed fsync the kernel may have dropped the dirty pages and say yes to the next one: what
            # is on the disk is unknown, and asking again proves nothing. So the directory is given up.
            raise self._log_dir.fail(error, f"syncing {self._directory}") from error
