"""Checkpoint files: the text, atomicity, what malformed ones say."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.java_gateway import JavaGateway

from storage.checkpoints import CorruptCheckpoint, OffsetCheckpointFile
from storage.disk import Disk

OFFSETS = {("orders", 0): 1734, ("orders", 1): 0, ("a.b_c-d", 12): 2**63 - 1}


class BrokenDisk(Disk):
    """Fails at one step of the replacement and records all of them."""

    __slots__ = ("failing", "steps")

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.steps: list[str] = []

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if name == self.failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        self._step("write")
        return super().pwrite(fd, data, position)

    def fdatasync(self, fd: int) -> None:
        self._step("sync")
        super().fdatasync(fd)

    def rename(self, source: str, target: str) -> None:
        self._step("rename")
        super().rename(source, target)

    def fsync_dir(self, path: str) -> None:
        self._step("sync directory")
        super().fsync_dir(path)


def test_text(tmp_path: Path) -> None:
    file = OffsetCheckpointFile(str(tmp_path / "c"))
    assert file.read() == {}
    file.write(OFFSETS)
    text = "0\n3\norders 0 1734\norders 1 0\na.b_c-d 12 9223372036854775807\n"
    assert (tmp_path / "c").read_text() == text
    assert file.read() == OFFSETS
    file.write({})
    assert (tmp_path / "c").read_text() == "0\n0\n"
    assert file.read() == {}
    assert os.listdir(tmp_path) == ["c"]


def test_written_in_the_safe_order(tmp_path: Path) -> None:
    disk = BrokenDisk()
    OffsetCheckpointFile(str(tmp_path / "c"), ops=disk).write(OFFSETS)
    assert disk.steps == ["write", "sync", "rename", "sync directory"]


@pytest.mark.parametrize("failing", ["write", "sync", "rename"])
def test_a_failed_write_leaves_the_old_content(tmp_path: Path, failing: str) -> None:
    OffsetCheckpointFile(str(tmp_path / "c")).write(OFFSETS)
    broken = OffsetCheckpointFile(str(tmp_path / "c"), ops=BrokenDisk(failing))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        broken.write({("other", 0): 1})
    assert broken.read() == OFFSETS
    OffsetCheckpointFile(str(tmp_path / "c")).write({("other", 0): 1})  # over what the failure left
    assert broken.read() == {("other", 0): 1}


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("x\n", 1, "version was expected"),
        ("1\n0\n", 1, "version 1 is not known"),
        ("0\n", 2, "number of entries is missing"),
        ("0\nmany\n", 2, "number of entries was expected"),
        ("0\n1\n", 2, "promises 1 entries, 0 follow"),
        ("0\n1\nt 0 1\nt 1 1\n", 2, "promises 1 entries, 2 follow"),
        ("0\n2\nt 0 1\nt 1\n", 4, "'t 1' is not an entry"),
        ("0\n1\nt 0 1 2\n", 3, "is not an entry"),
        ("0\n1\nt zero 1\n", 3, "'zero' is not a whole number"),
        ("0\n1\nt 0 1_0\n", 3, "'1_0' is not a whole number"),
        ("0\n1\n\n", 3, "is not an entry"),
        ("\x00\x00\x00\x00", 1, "version was expected"),
    ],
)
def test_malformed(tmp_path: Path, text: str, line: int, what: str) -> None:
    (tmp_path / "c").write_text(text)
    with pytest.raises(CorruptCheckpoint, match=what) as caught:
        OffsetCheckpointFile(str(tmp_path / "c")).read()
    assert caught.value.line_number == line
    assert str(caught.value).startswith(f"{tmp_path / 'c'}, line {line}: ")


def test_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"\xff\xfe0\n0\n")
    with pytest.raises(CorruptCheckpoint, match="version was expected"):
        OffsetCheckpointFile(str(tmp_path / "c")).read()


def test_empty_file_has_no_entries(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"")
    assert OffsetCheckpointFile(str(tmp_path / "c")).read() == {}


@given(
    st.dictionaries(
        st.tuples(st.from_regex(r"[a-zA-Z0-9._-]{1,40}", fullmatch=True), st.integers(0, 2**31 - 1)),
        st.integers(-1, 2**63 - 1),
        max_size=20,
    )
)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, offsets: dict[tuple[str, int], int]) -> None:
    file = OffsetCheckpointFile(str(tmp_path_factory.mktemp("checkpoint") / "c"))
    file.write(offsets)
    assert file.read() == offsets


@pytest.mark.stock
def test_same_file_as_kafkas(jvm: JavaGateway, tmp_path: Path) -> None:
    java = jvm.jvm.org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile
    theirs = java(jvm.jvm.java.io.File(str(tmp_path / "theirs")), None)
    # All above 2^31: py4j passes a smaller number into a map as an Integer, where Kafka wants a Long.
    large = {key: 2**40 + number for number, key in enumerate(OFFSETS)}
    offsets = jvm.jvm.java.util.LinkedHashMap()
    for (topic, partition), offset in large.items():
        offsets.put(jvm.jvm.org.apache.kafka.common.TopicPartition(topic, partition), offset)
    theirs.write(offsets)
    OffsetCheckpointFile(str(tmp_path / "ours")).write(large)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    found = java(jvm.jvm.java.io.File(str(tmp_path / "ours")), None).read()
    assert {(key.topic(), key.partition()): found[key] for key in found} == large
