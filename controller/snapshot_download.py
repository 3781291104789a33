"""A snapshot of the leader's on its way to this node: piece by piece into a file, then checked, then put in place."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sized

from controller.checkpoint import PART_SUFFIX, Snapshot, SnapshotId, read_snapshot
from controller.delta import ImageBuilder, MetadataError
from controller.features import check_supported
from controller.image import EMPTY_IMAGE, MetadataImage
from controller.raft.types import OffsetEpoch, SnapshotInstalled
from controller.voters import from_record
from storage.disk import Disk
from storage.errors import StorageError


class SnapshotDownload:
    """The file has its final name only when it is whole, checked and durable: a crash leaves a part that is removed."""

    snapshot: Snapshot
    image: MetadataImage

    def __init__(self, directory: str, snapshot_id: OffsetEpoch, disk: Disk) -> None:
        self.snapshot_id = snapshot_id
        self.file_id = SnapshotId(*snapshot_id)
        self._disk = disk
        self._path = os.path.join(directory, self.file_id.file_name)
        self._part = self._path + PART_SUFFIX
        self._fd = -1

    def write(self, position: int, payload: Sized) -> None:
        assert isinstance(payload, (bytes, bytearray, memoryview))
        try:
            if self._fd < 0:
                self._fd = self._disk.open(self._part, create=True)
                self._disk.truncate(self._fd, 0)
            self._disk.pwrite(self._fd, payload, position)
        except OSError as error:
            self.discard()
            raise StorageError(f"writing {self._part} failed: {error}", self._path) from error

    def complete(self) -> None:
        """Blocking. What does not pass its checks is removed and never becomes part of the metadata."""
        try:
            self._disk.fdatasync(self._fd)
            os.fchmod(self._fd, 0o400)
            self.snapshot = read_snapshot(self._part)
            builder = ImageBuilder(EMPTY_IMAGE)
            builder.replay_all(self.snapshot.records)
            end_offset, epoch = self.snapshot_id
            self.image, _ = builder.build(end_offset - 1, epoch, self.snapshot.last_contained_timestamp)
            check_supported(self.image.features)
            self._disk.rename(self._part, self._path)
            self._disk.fsync_dir(os.path.dirname(self._path))
            self._close()
        except MetadataError as error:
            self.discard()
            raise StorageError(f"the snapshot that the leader sent is refused: {error}", self._path) from None
        except OSError as error:
            self.discard()
            raise StorageError(f"writing {self._part} failed: {error}", self._path) from error

    def installed(self) -> SnapshotInstalled:
        voters = self.snapshot.voters
        return SnapshotInstalled(
            self.snapshot_id, None if voters is None else from_record(voters), self.snapshot.kraft_version
        )

    def discard(self) -> None:
        self._close()
        with contextlib.suppress(OSError):
            self._disk.unlink(self._part)

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._disk.close(fd)
