"""A disk that loses power: unsynced bytes are gone after a crash, and the next write or fsync can be made to fail.

It works on real files below a root, so the code under test runs unchanged. Before the first unsynced change to a file
its durable content is remembered (by inode, so renames do not matter); `crash` puts it back. Names are durable at once,
which is kinder than a real disk; contents are not. Memory-mapped index files are written behind its back and keep
whatever they hold, as the page cache of a killed process does; `crash(spoil_indexes=True)` fills them with rubbish
instead, which is what a power failure may do.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from storage.disk import Buffer, Disk


class FakeDisk(Disk):
    """Counts are public, so that a test can say how many syncs an operation may cost."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.full = False  # every write and reservation fails, after half of the bytes
        self.fail_next_write: int | None = None  # an errno
        self.fail_next_fsync: int | None = None
        self.fail_truncate = False
        self.writes = 0
        self.syncs = 0
        self._durable: dict[tuple[int, int], bytes] = {}

    # --- the seam

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:
        self._remember(fd)
        code = errno.ENOSPC if self.full else self.fail_next_write
        if code is not None:
            self.fail_next_write = None
            super().pwrite(fd, memoryview(data)[: len(data) // 2], position)
            raise OSError(code, os.strerror(code))
        self.writes += 1
        return super().pwrite(fd, data, position)

    def truncate(self, fd: int, size: int) -> None:
        if self.fail_truncate:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._remember(fd)
        super().truncate(fd, size)

    def fallocate(self, fd: int, offset: int, length: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().fallocate(fd, offset, length)

    def fdatasync(self, fd: int) -> None:
        if self.fail_next_fsync is not None:
            code, self.fail_next_fsync = self.fail_next_fsync, None
            raise OSError(code, os.strerror(code))
        self.syncs += 1
        self._durable.pop(self._key(os.fstat(fd)), None)

    def fsync_dir(self, path: str) -> None:
        self.syncs += 1

    # --- the crash

    def crash(self, *, surviving: int = 0, spoil_indexes: bool = False) -> None:
        """Power failure: of each file's unsynced new tail only the first `surviving` bytes are left."""
        for path in sorted(self.root.rglob("*")):
            if not path.is_file():
                continue
            durable = self._durable.get(self._key(path.stat()))
            if durable is not None:
                current = path.read_bytes()
                kept = current[len(durable) : len(durable) + surviving] if current.startswith(durable) else b""
                path.write_bytes(durable + kept)
            if spoil_indexes and path.suffix in (".index", ".timeindex"):
                path.write_bytes(b"\x00" * 96 + b"\x7f" * 24)
        self._durable.clear()
        self.full = False
        self.fail_next_write = self.fail_next_fsync = None

    def unsynced_bytes(self, path: Path) -> int:
        """How many bytes at the end of the file a crash would take."""
        durable = self._durable.get(self._key(path.stat()))
        return 0 if durable is None else path.stat().st_size - len(durable)

    def _remember(self, fd: int) -> None:
        status = os.fstat(fd)
        key = self._key(status)
        if key not in self._durable:
            self._durable[key] = os.pread(fd, status.st_size, 0)

    @staticmethod
    def _key(status: os.stat_result) -> tuple[int, int]:
        return status.st_dev, status.st_ino
