"""`barnabas` on a disk that goes bad while it runs: `python -m support.failing_disk <mark> server-start ...`

The file `mark` says what is wrong, one "<kind> <directory>" per line; while it is not there, all is well:
  sync    every fdatasync and fsync below the directory fails, as a dying disk's does
  write   so does every write
  full    a write stores half of its bytes, and the rest finds no space; nothing can be allocated
  slow    every sync takes a while, and every write a little
Each time that this is felt, the file `<mark>.hits` gets a line with the kind, the operation and the path: a disk that
nobody used while it was broken has tested nothing.
Nothing else differs from `cli.main`, but that SIGUSR1 makes it say where it is.
"""

from __future__ import annotations

import errno
import faulthandler
import os
import signal
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from cli.main import main

SLOW_SYNC_S = 0.2
SLOW_WRITE_S = 0.005
"""Writes go through the page cache; a disk that cannot keep up is felt there, too, but much less."""


class BadDisk:
    def __init__(self, mark: Path) -> None:
        self._mark = mark
        self._short: dict[int, int] = {}  # fd -> where the last write ran out of space
        self._hits = os.open(hits_of(mark), os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def _fault(self, fd: int, operation: str, felt: Collection[str]) -> str:
        """What is wrong with the file's disk, if the operation feels it."""
        try:
            lines = self._mark.read_text().splitlines()
        except FileNotFoundError:
            return ""
        path = os.readlink(f"/proc/self/fd/{fd}")
        kind = next((kind for kind, directory in map(str.split, lines) if path.startswith(directory)), "")
        if kind not in felt:
            return ""
        os.write(self._hits, f"{kind} {operation} {path}\n".encode())
        return kind

    def sync(self, fd: int, real: Callable[[int], None]) -> None:
        kind = self._fault(fd, "sync", ("sync", "write", "slow"))
        if kind in ("sync", "write"):
            raise _error(errno.EIO)
        if kind == "slow":
            time.sleep(SLOW_SYNC_S)
        real(fd)

    def write(self, fd: int, data: Any, position: int, real: Callable[[int, Any, int], int]) -> int:
        kind = self._fault(fd, "write", ("write", "full", "slow"))
        if kind == "write":
            raise _error(errno.EIO)
        if kind == "full":
            if len(data) < 2 or self._short.get(fd) == position:
                raise _error(errno.ENOSPC)
            written = real(fd, memoryview(data)[: len(data) // 2], position)
            self._short[fd] = position + written
            return written
        if kind == "slow":
            time.sleep(SLOW_WRITE_S)
        return real(fd, data, position)

    def allocate(self, fd: int, offset: int, length: int, real: Callable[[int, int, int], None]) -> None:
        if self._fault(fd, "allocate", ("full", "write")):
            raise _error(errno.ENOSPC)
        real(fd, offset, length)

    def install(self) -> None:
        fdatasync, fsync, pwrite, allocate = os.fdatasync, os.fsync, os.pwrite, os.posix_fallocate
        os.fdatasync = lambda fd: self.sync(fd, fdatasync)  # type: ignore[assignment]
        os.fsync = lambda fd: self.sync(fd, fsync)  # type: ignore[assignment]
        os.pwrite = lambda fd, data, position: self.write(fd, data, position, pwrite)  # type: ignore[assignment]
        os.posix_fallocate = lambda fd, at, length: self.allocate(fd, at, length, allocate)  # type: ignore[assignment]


def hits_of(mark: Path) -> Path:
    return mark.with_name(f"{mark.name}.hits")


def _error(code: int) -> OSError:
    return OSError(code, os.strerror(code))


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)
    BadDisk(Path(sys.argv[1])).install()
    sys.exit(main(sys.argv[2:]))
