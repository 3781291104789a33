"""The seam between the log and the operating system.

Every byte that must survive a crash is written, synced, renamed and removed through a `Disk`, so that a test can
put a disk underneath that loses power, fills up, or fails an fsync. Methods raise OSError exactly as `os` does; the
callers decide what that means for a log.
"""

from __future__ import annotations

import errno
import os
from typing import Final, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

DISK_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors that pass when space is freed."""


class Disk:
    """The real thing. Stateless: one instance (`DISK`) serves the whole process."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> int:
        flags = os.O_CLOEXEC | (os.O_RDWR if writable else os.O_RDONLY)
        if create:
            flags |= os.O_CREAT
        return os.open(path, flags, 0o644)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:
        """Write all of `data` or raise. After a raise any prefix of it may be in the file."""
        written = os.pwrite(fd, data, position)
        if written != len(data):  # a nearly full disk takes what fits and fails only the next call
            view = memoryview(data)
            while written < len(view):
                written += os.pwrite(fd, view[written:], position + written)
        return written

    def pread(self, fd: int, length: int, position: int) -> bytes:
        return os.pread(fd, length, position)

    def fdatasync(self, fd: int) -> None:
        """Holds no GIL while it waits, unlike `mmap.flush`: call it in a thread, never on the loop."""
        os.fdatasync(fd)

    def fsync_dir(self, path: str) -> None:
        """Makes created, renamed and removed names of a directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def fallocate(self, fd: int, offset: int, length: int) -> None:
        """Reserves space now: a mapping that meets a full disk later is a SIGBUS."""
        os.posix_fallocate(fd, offset, length)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)


class UnsyncedDisk(Disk):
    """Another disk without its syncs: for a file whose loss in a crash the next start makes good."""

    __slots__ = ("_inner",)

    def __init__(self, inner: Disk) -> None:
        self._inner = inner

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:
        return self._inner.pwrite(fd, data, position)

    def rename(self, source: str, target: str) -> None:
        self._inner.rename(source, target)

    def fdatasync(self, fd: int) -> None:
        return

    def fsync_dir(self, path: str) -> None:
        return


DISK = Disk()
