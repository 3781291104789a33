"""Byte ranges of segment files, as a fetch returns them: nothing is read until someone sends or asks."""

from __future__ import annotations

import os

from storage.disk import DISK, Disk


class LogFile:
    """The `.log` file of one segment: its path, its descriptor, its lifetime.

    Opened on first use, because a clean start must not open thousands of files. The descriptor lives as long
    as anyone holds this object: a segment that retention removes while a response is being sent stays readable,
    for the kernel frees an unlinked file with its last descriptor.
    """

    __slots__ = ("__weakref__", "_fd", "disk", "path")

    def __init__(self, path: str, disk: Disk = DISK) -> None:
        self.path = path
        self.disk = disk
        self._fd = -1

    def fileno(self) -> int:
        if self._fd < 0:
            self._fd = self.disk.open(self.path)
        return self._fd

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    def create(self) -> None:
        self._fd = self.disk.open(self.path, create=True)

    def close(self) -> None:
        """Only for a clean shutdown or a test: afterwards slices of this file open it anew by its path."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self.disk.close(fd)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


class FileSlice:
    """`length` bytes of a log file from `position`, to be handed to sendfile.

    A truncation (a follower that must forget its tail) may shorten the file under a slice: sendfile then
    returns 0 before `length` bytes are out, and the sender has to close the connection.
    """

    __slots__ = ("file", "length", "position")

    def __init__(self, file: LogFile, position: int, length: int) -> None:
        self.file = file
        self.position = position
        self.length = length

    def __len__(self) -> int:
        return self.length

    def fileno(self) -> int:
        return self.file.fileno()

    def read(self) -> bytes:
        """The bytes themselves: for small slices, TLS connections and tests. Short if the file was cut."""
        data = os.pread(self.file.fileno(), self.length, self.position)
        while data and len(data) < self.length:
            more = os.pread(self.file.fileno(), self.length - len(data), self.position + len(data))
            if not more:
                break
            data += more
        return data

    def __repr__(self) -> str:
        return f"FileSlice({self.file.path!r}, position={self.position}, length={self.length})"
