"""The disk that goes bad on demand: it fails as asked, where asked, and says how often that was felt."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.failing_disk import BadDisk, hits_of


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[int]:
    """A file in the directory that is broken."""
    (tmp_path / "bad").mkdir()
    fd = os.open(tmp_path / "bad" / "file", os.O_RDWR | os.O_CREAT)
    yield fd
    os.close(fd)


def sync(disk: BadDisk, fd: int) -> None:
    disk.sync(fd, os.fsync)


def write(disk: BadDisk, fd: int) -> None:
    assert disk.write(fd, b"12345678", 0, os.pwrite) == 8


def allocate(disk: BadDisk, fd: int) -> None:
    disk.allocate(fd, 0, 100, os.posix_fallocate)


@pytest.mark.parametrize(
    ("kind", "operation", "code"),
    [
        ("sync", sync, errno.EIO),
        ("write", sync, errno.EIO),
        ("write", write, errno.EIO),
        ("write", allocate, errno.ENOSPC),
        ("full", allocate, errno.ENOSPC),
    ],
)
def test_what_fails_is_counted(
    kind: str, operation: Callable[[BadDisk, int], None], code: int, tmp_path: Path, opened: int
) -> None:
    mark = tmp_path / "mark"
    disk = BadDisk(mark)
    operation(disk, opened)
    mark.write_text(f"{kind} {tmp_path / 'elsewhere'}\n")
    operation(disk, opened)
    assert hits_of(mark).read_text() == ""
    mark.write_text(f"{kind} {tmp_path / 'bad'}\n")
    for count in (1, 2):
        with pytest.raises(OSError) as raised:
            operation(disk, opened)
        assert raised.value.errno == code
        assert len(hits_of(mark).read_text().splitlines()) == count
    assert hits_of(mark).read_text().splitlines()[0] == f"{kind} {operation.__name__} {tmp_path / 'bad' / 'file'}"
    mark.unlink()
    operation(disk, opened)
    assert len(hits_of(mark).read_text().splitlines()) == 2


def test_a_full_disk_takes_half_a_write_and_then_nothing(tmp_path: Path, opened: int) -> None:
    mark = tmp_path / "mark"
    disk = BadDisk(mark)
    mark.write_text(f"full {tmp_path / 'bad'}\n")
    assert disk.write(opened, b"12345678", 0, os.pwrite) == 4
    with pytest.raises(OSError):
        disk.write(opened, b"5678", 4, os.pwrite)
    assert len(hits_of(mark).read_text().splitlines()) == 2
    sync(disk, opened)  # nothing new is to be stored
    assert len(hits_of(mark).read_text().splitlines()) == 2


@pytest.mark.parametrize("operation", [sync, write])
def test_a_slow_disk_does_its_work(operation: Callable[[BadDisk, int], None], tmp_path: Path, opened: int) -> None:
    mark = tmp_path / "mark"
    mark.write_text(f"slow {tmp_path / 'bad'}\n")
    operation(BadDisk(mark), opened)
    assert len(hits_of(mark).read_text().splitlines()) == 1
