"""One of the directories named in `log.dirs`: its lock, its state, its checkpoint files."""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping

from protocol.uuids import Uuid
from storage.atomic_file import read_text, write_atomically
from storage.checkpoints import (
    LOG_START_OFFSET,
    RECOVERY_POINT,
    REPLICATION_OFFSET,
    CorruptCheckpoint,
    OffsetCheckpointFile,
)
from storage.disk import DISK, DISK_FULL, Disk
from storage.errors import StorageError

LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"

_log = logging.getLogger(__name__)


def epoch_of_clean_stop(marks: Iterable[tuple[bool, int] | None]) -> int:
    """The broker epoch of the last run if it ended cleanly in every log directory, -1 otherwise. A mark is what
    `read_clean_shutdown` found; None stands for a directory that cannot be used.

    One that failed may have lost what was acknowledged, and it has no mark, or an older one. The controller takes a
    broker's word for all its replicas at once, so one such directory is enough for none.
    """
    epochs = {mark[1] if mark is not None and mark[0] else -1 for mark in marks}
    return epochs.pop() if len(epochs) == 1 else -1


class LogDirectory:
    """`online` turns False once, at the first failed fsync or unreadable file, and only a restart turns it back.

    A log keeps a reference and asks `online` before each append: what cannot be made durable is not accepted.
    """

    __slots__ = (
        "_disk",
        "_lock_fd",
        "directory_id",
        "log_start_offsets",
        "on_failure",
        "online",
        "path",
        "recovery_points",
        "replication_offsets",
    )

    def __init__(self, path: str, directory_id: Uuid = Uuid.ZERO, *, disk: Disk = DISK) -> None:
        self.path = path
        self.directory_id = directory_id
        self.online = True
        self.on_failure: Callable[[LogDirectory], None] | None = None
        self._disk = disk
        self._lock_fd = -1
        self.recovery_points = OffsetCheckpointFile(os.path.join(path, RECOVERY_POINT), ops=disk)
        self.log_start_offsets = OffsetCheckpointFile(os.path.join(path, LOG_START_OFFSET), ops=disk)
        self.replication_offsets = OffsetCheckpointFile(os.path.join(path, REPLICATION_OFFSET), ops=disk)

    def __repr__(self) -> str:
        return f"LogDirectory({self.path!r}, {'online' if self.online else 'offline'})"

    # --- failure

    def fail(self, error: OSError, doing: str) -> StorageError:
        """Take the directory offline and return what to raise. `on_failure` is called once; from any thread."""
        if self.online:
            self.online = False
            _log.error("Log directory %s goes offline: %s failed: %s", self.path, doing, error)
            if self.on_failure is not None:
                self.on_failure(self)
        return StorageError(f"{doing} failed: {error}", self.path)

    def offline_error(self) -> StorageError:
        return StorageError(f"Log directory {self.path} is offline", self.path)

    # --- the lock

    def lock(self) -> None:
        """Refuse to share the directory with another broker, ours or Apache Kafka's.

        flock keeps out a second Barnabas, even inside one process; lockf is what Java's file locks are.
        """
        fd = os.open(os.path.join(self.path, LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise StorageError(
                f"Log directory {self.path} is used by another broker: its file {LOCK_FILE} is locked. "
                "Stop that broker, or set log.dirs to another directory.",
                self.path,
            ) from None
        except OSError:
            os.close(fd)
            raise
        self._lock_fd = fd

    def unlock(self) -> None:
        fd, self._lock_fd = self._lock_fd, -1
        if fd >= 0:
            os.close(fd)

    # --- the mark of a clean shutdown

    def take_clean_shutdown(self) -> tuple[bool, int]:
        """Whether the last run ended cleanly, and its broker epoch (-1 if unknown). Removes the mark durably.

        Removed before anything is written: a crash of this run must not look like the clean end of the last.
        """
        clean, epoch = self.read_clean_shutdown()
        if clean:
            self._disk.unlink(os.path.join(self.path, CLEAN_SHUTDOWN_FILE))
            self._disk.fsync_dir(self.path)
        return clean, epoch

    def read_clean_shutdown(self) -> tuple[bool, int]:
        """The same, and the mark stays: to register, a broker needs the epoch before it opens its logs."""
        text = read_text(os.path.join(self.path, CLEAN_SHUTDOWN_FILE))
        if text is None:
            return False, -1
        epoch = -1
        with contextlib.suppress(ValueError, TypeError, AttributeError, KeyError):  # older versions wrote nothing
            epoch = int(json.loads(text)["brokerEpoch"])
        return True, epoch

    def mark_clean_shutdown(self, broker_epoch: int = -1) -> None:
        """To be called last, when all logs are synced and all checkpoints written."""
        text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        write_atomically(os.path.join(self.path, CLEAN_SHUTDOWN_FILE), text.encode(), self._disk)

    # --- checkpoints

    def read_checkpoint(self, file: OffsetCheckpointFile) -> dict[tuple[str, int], int]:
        """Offsets, or none if the file is damaged: every log is then walked from its beginning, which is safe."""
        try:
            return file.read()
        except CorruptCheckpoint as error:
            _log.error("%s; going on without it", error)
            return {}

    def write_checkpoint(self, file: OffsetCheckpointFile, offsets: Mapping[tuple[str, int], int]) -> None:
        """Blocks for two fsyncs; safe in a thread. A failure takes the directory offline."""
        if not self.online:
            return
        try:
            file.write(offsets)
        except OSError as error:
            if error.errno in DISK_FULL:  # the old file is still there
                _log.error("Cannot write %s: %s", file.path, error)
                raise StorageError(f"writing {file.path} failed: {error}", self.path) from error
            raise self.fail(error, f"writing {file.path}") from error
