"""Formatting: an empty directory becomes ours, a half-formatted one is finished, someone else's is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.metadata import logged, node_config

from controller.storage_format import FormatError, NodeDirectories, ensure_formatted
from protocol.uuids import Uuid
from storage.disk import Buffer, Disk
from storage.meta_properties import MetaProperties, read_meta_properties, write_meta_properties


class PowerFailure(Exception):
    pass


class FailingDisk(Disk):
    """The power fails at the n-th operation: everything from there on does not happen."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def _count(self) -> None:
        if self.left == 0:
            raise PowerFailure
        self.left -= 1

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> int:
        self._count()
        return super().open(path, create=create, writable=writable)

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:
        self._count()
        return super().pwrite(fd, data, position)

    def fdatasync(self, fd: int) -> None:
        self._count()

    def fsync_dir(self, path: str) -> None:
        self._count()

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)


def test_an_empty_directory_gets_kafkas_files(tmp_path: Path) -> None:
    node = ensure_formatted(node_config(tmp_path / "data"))
    assert node.formatted_now
    found = sorted(str(path.relative_to(tmp_path / "data")) for path in (tmp_path / "data").rglob("*"))
    assert found == [
        "__cluster_metadata-0",
        "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint",
        "bootstrap.checkpoint",
        "meta.properties",
    ]
    meta = read_meta_properties(str(tmp_path / "data"))
    assert meta == MetaProperties(node.cluster_id, 1, node.metadata_directory_id)
    levels = {record.name: record.feature_level for _, record in logged(tmp_path / "data" / "bootstrap.checkpoint")}  # type: ignore[attr-defined]
    assert levels["metadata.version"] == 30 and levels["transaction.version"] == 2
    again = ensure_formatted(node_config(tmp_path / "data"))
    assert again == node._replace(formatted_now=False)


def test_a_format_that_was_cut_anywhere_is_finished_by_the_next_start(tmp_path: Path) -> None:
    """A crash while bootstrap.checkpoint was written used to leave a directory that every later start refused."""
    for operations in range(200):
        first, second = tmp_path / f"a{operations}", tmp_path / f"b{operations}"
        config = node_config(first, log_dirs=f"{first},{second}")
        try:
            done: NodeDirectories | None = ensure_formatted(config, disk=FailingDisk(operations))
        except PowerFailure:
            done = None
        node = ensure_formatted(config)
        assert set(node.directory_ids) == {str(first), str(second)}
        assert len(set(node.directory_ids.values())) == 2
        assert (first / "bootstrap.checkpoint").exists()
        if done is not None:
            assert operations > 10 and node == done._replace(formatted_now=False)
            return
    raise AssertionError("the format never ended")


def test_a_directory_of_another_node_is_refused_with_setting_and_file(tmp_path: Path) -> None:
    ensure_formatted(node_config(tmp_path))
    with pytest.raises(FormatError) as refused:
        ensure_formatted(node_config(tmp_path, node_id="2"))
    text = str(refused.value)
    assert "node.id is 2" in text and "node 1" in text and str(tmp_path / "meta.properties") in text


def test_directories_of_two_clusters_are_refused_with_both_files(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    ensure_formatted(node_config(first))
    second.mkdir()
    write_meta_properties(str(second), MetaProperties("another-cluster", 1, Uuid.random()))
    with pytest.raises(FormatError) as refused:
        ensure_formatted(node_config(first, log_dirs=f"{first},{second}"))
    text = str(refused.value)
    assert "another-cluster" in text and "log.dirs" in text
    assert str(first / "meta.properties") in text and str(second / "meta.properties") in text


def test_a_directory_that_holds_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(FormatError, match=r"thesis\.txt.*log\.dirs"):
        ensure_formatted(node_config(tmp_path))
    assert os.listdir(tmp_path) == ["thesis.txt"]


def test_missing_metadata_is_not_replaced_by_a_new_cluster(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    ensure_formatted(node_config(first, log_dirs=f"{first},{second}"))
    with pytest.raises(FormatError, match=r"metadata is missing.*metadata\.log\.dir"):
        ensure_formatted(node_config(first, log_dirs=str(second), metadata_log_dir=str(tmp_path / "new")))


def test_a_copied_directory_is_refused(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    ensure_formatted(node_config(first))
    second.mkdir()
    (second / "meta.properties").write_text((first / "meta.properties").read_text())
    with pytest.raises(FormatError, match=r"same directory\.id"):
        ensure_formatted(node_config(first, log_dirs=f"{first},{second}"))


@pytest.mark.parametrize("servers", ["127.0.0.1:9093,127.0.0.1:9094"])
def test_a_node_of_a_larger_cluster_does_not_format_itself(tmp_path: Path, servers: str) -> None:
    with pytest.raises(FormatError, match=r"controller\.quorum\.bootstrap\.servers"):
        ensure_formatted(node_config(tmp_path / "data", controller_quorum_bootstrap_servers=servers))
    assert not (tmp_path / "data").exists()
