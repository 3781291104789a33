"""Small files that are replaced as a whole, so that a crash leaves either the old text or the new one.

The order is what makes it safe: the new bytes are durable under another name before the name changes, and the
directory is synced last, because until then the rename itself may be lost.
"""

from __future__ import annotations

import os

from storage.disk import DISK, Disk

TEMPORARY_SUFFIX = ".tmp"  # Kafka's: a left-over of a crash is ignored and overwritten by both


def write_atomically(path: str, data: bytes, ops: Disk = DISK) -> None:
    """Make `data` the durable content of `path`; on an OSError the old content is still there."""
    temporary = path + TEMPORARY_SUFFIX
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        ops.pwrite(fd, data, 0)
        ops.fdatasync(fd)
    finally:
        os.close(fd)
    ops.rename(temporary, path)
    ops.fsync_dir(os.path.dirname(path) or ".")


def read_text(path: str) -> str | None:
    """The text of `path`, None if it does not exist. What is not UTF-8 becomes U+FFFD, to be refused."""
    try:
        with open(path, encoding="utf-8", errors="replace", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return None
