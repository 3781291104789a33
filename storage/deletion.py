"""Files that are to go, but not yet: readers that found them a moment ago may still open them.

A deletion renames at once (so that a restart finishes it) and unlinks after `file.delete.delay.ms`.
"""

from __future__ import annotations

import heapq
import logging
import os
import shutil
from collections.abc import Callable

from storage.disk import DISK, Disk

_log = logging.getLogger(__name__)


class DelayedDeletions:
    """A heap of (due time, sequence, paths). `on_added` tells its owner that there may be an earlier deadline."""

    __slots__ = ("_disk", "_heap", "_sequence", "on_added")

    def __init__(self, disk: Disk = DISK) -> None:
        self._disk = disk
        self._heap: list[tuple[int, int, list[str]]] = []
        self._sequence = 0
        self.on_added: Callable[[], None] | None = None

    def add(self, due_ms: int, paths: list[str]) -> None:
        """Files or whole directories to remove once the clock reaches `due_ms`."""
        self._sequence += 1
        heapq.heappush(self._heap, (due_ms, self._sequence, paths))
        if self.on_added is not None:
            self.on_added()

    @property
    def next_due_ms(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def take_due(self, now_ms: int) -> list[str]:
        """The paths whose time has come, removed from the schedule."""
        due: list[str] = []
        while self._heap and self._heap[0][0] <= now_ms:
            due += heapq.heappop(self._heap)[2]
        return due

    def remove(self, paths: list[str]) -> None:
        """Remove them for good; safe in a thread. What cannot be removed is logged and left to the next start."""
        for path in paths:
            try:
                if os.path.isdir(path):
                    shutil.rmtree(path)
                else:
                    self._disk.unlink(path)
            except FileNotFoundError:
                continue  # gone with its directory
            except OSError as error:
                _log.error("Cannot delete %s: %s", path, error)

    def run_due(self, now_ms: int) -> int:
        """Remove what is due now, in this thread. Returns how many paths."""
        paths = self.take_due(now_ms)
        self.remove(paths)
        return len(paths)
