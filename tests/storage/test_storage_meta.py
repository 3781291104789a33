"""partition.metadata and meta.properties, alone and against Kafka's classes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from py4j.java_gateway import JavaGateway

from protocol.uuids import DIRECTORY_MIGRATING, Uuid
from storage import meta_properties, partition_metadata
from storage.meta_properties import (
    CorruptMetaProperties,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from storage.partition_metadata import (
    CorruptPartitionMetadata,
    read_partition_metadata,
    write_partition_metadata,
)

ID = Uuid.parse("q1Sh-9_ISia_zwGINzRvyQ")


def test_partition_metadata(tmp_path: Path) -> None:
    assert read_partition_metadata(str(tmp_path)) is None
    write_partition_metadata(str(tmp_path), ID)
    text = (tmp_path / partition_metadata.FILE_NAME).read_text()
    assert text == "version: 0\ntopic_id: q1Sh-9_ISia_zwGINzRvyQ"
    assert read_partition_metadata(str(tmp_path)) == ID


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: 'version: ...' was expected, not the end of the file"),
        ("version: 0\n", "line 2: 'topic_id: ...' was expected, not the end"),
        ("version:0\ntopic_id:q1Sh-9_ISia_zwGINzRvyQ", "line 1: .* not 'version:0'"),
        ("topic_id: q1Sh-9_ISia_zwGINzRvyQ\nversion: 0", "line 1"),
        ("version: 1\ntopic_id: q1Sh-9_ISia_zwGINzRvyQ", "line 1: version 1 is not known"),
        ("version: 0\ntopic_id: q1Sh", "line 2: 'q1Sh' is not a base64 UUID"),
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "line 2: the topic id is zero"),
    ],
)
def test_malformed_partition_metadata(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / partition_metadata.FILE_NAME).write_text(text)
    with pytest.raises(CorruptPartitionMetadata, match=message) as caught:
        read_partition_metadata(str(tmp_path))
    assert str(tmp_path) in str(caught.value)


def test_meta_properties(tmp_path: Path) -> None:
    assert read_meta_properties(str(tmp_path)) is None
    written = MetaProperties("5L6g3nShT-eMCtK--X86sw", 7, ID)
    write_meta_properties(str(tmp_path), written, written_at=1795000000.0)
    assert (tmp_path / meta_properties.FILE_NAME).read_text() == (
        "#\n#Wed Nov 18 11:06:40 UTC 2026\n"
        "node.id=7\ndirectory.id=q1Sh-9_ISia_zwGINzRvyQ\nversion=1\ncluster.id=5L6g3nShT-eMCtK--X86sw\n"
    )
    assert read_meta_properties(str(tmp_path)) == written


def test_meta_properties_of_older_versions(tmp_path: Path) -> None:
    (tmp_path / meta_properties.FILE_NAME).write_text("cluster.id=x\nbroker.id=3\n")
    assert read_meta_properties(str(tmp_path)) == MetaProperties("x", 3, None, 0)
    (tmp_path / meta_properties.FILE_NAME).write_text("version=1\ncluster.id=x\nnode.id=3\n")
    assert read_meta_properties(str(tmp_path)) == MetaProperties("x", 3, None, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version=1\nnode.id=1\n", "cluster.id is missing"),
        ("version=1\ncluster.id=x\n", "node.id is missing"),
        ("# a comment\nversion=2\ncluster.id=x\nnode.id=1\n", "line 2: version 2 is not known"),
        ("version=one\n", "line 1: version: 'one' is not a whole number"),
        ("version=1\ncluster.id=x\nnode.id=a\n", "line 3: node.id: 'a' is not a whole number"),
        ("version=1\ncluster.id=x\nnode.id=1\ndirectory.id=zz\n", "line 4: directory.id: 'zz'"),
        (f"version=1\ncluster.id=x\nnode.id=1\ndirectory.id={DIRECTORY_MIGRATING}\n", "is reserved"),
        ("version=1\ncluster.id=\\u12\nnode.id=1\n", "line 2"),
    ],
)
def test_malformed_meta_properties(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / meta_properties.FILE_NAME).write_text(text)
    with pytest.raises(CorruptMetaProperties, match=message) as caught:
        read_meta_properties(str(tmp_path))
    assert str(tmp_path) in str(caught.value)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_any_cluster_id_comes_back(tmp_path_factory: pytest.TempPathFactory, cluster_id: str) -> None:
    directory = str(tmp_path_factory.mktemp("meta"))
    write_meta_properties(directory, MetaProperties(cluster_id, 1, ID))
    found = read_meta_properties(directory)
    assert found is not None
    assert found.cluster_id == cluster_id


def without_date(path: Path) -> list[str]:
    lines = path.read_text().split("\n")
    assert lines[1].startswith("#")
    return lines[:1] + lines[2:]


@pytest.mark.stock
@pytest.mark.parametrize("cluster_id", ["5L6g3nShT-eMCtK--X86sw", " abc:d=e #f!\\ g\th", "Zürich \U0001f600"])
def test_same_meta_properties_as_kafkas(jvm: JavaGateway, tmp_path: Path, cluster_id: str) -> None:
    kafka = jvm.jvm.org.apache.kafka
    (tmp_path / "theirs").mkdir()
    theirs = (
        kafka.metadata.properties.MetaProperties.Builder()
        .setVersion(kafka.metadata.properties.MetaPropertiesVersion.V1)
        .setClusterId(cluster_id)
        .setNodeId(7)
        .setDirectoryId(kafka.common.Uuid.fromString(str(ID)))
        .build()
    )
    path = tmp_path / "theirs" / meta_properties.FILE_NAME
    kafka.metadata.properties.PropertiesUtils.writePropertiesFile(theirs.toProperties(), str(path), True)
    written = MetaProperties(cluster_id, 7, ID)
    write_meta_properties(str(tmp_path), written)
    if cluster_id.isascii():
        assert without_date(tmp_path / meta_properties.FILE_NAME) == without_date(path)
    else:
        # Kafka writes UTF-8 and reads ISO-8859-1, so not even Kafka reads that back. Ours is read by both.
        read = kafka.metadata.properties.PropertiesUtils.readPropertiesFile(str(path))
        assert read["cluster.id"] != cluster_id
    assert read_meta_properties(str(tmp_path / "theirs")) == written
    read = kafka.metadata.properties.PropertiesUtils.readPropertiesFile(str(tmp_path / meta_properties.FILE_NAME))
    assert kafka.metadata.properties.MetaProperties.Builder(read).build().equals(theirs)


@pytest.mark.stock
def test_same_partition_metadata_as_kafkas(jvm: JavaGateway, tmp_path: Path) -> None:
    kafka = jvm.jvm.org.apache.kafka
    (tmp_path / "theirs").mkdir()
    failures = kafka.storage.internals.log.LogDirFailureChannel(1)

    def java_file(directory: Path) -> object:
        file = jvm.jvm.java.io.File(str(directory / partition_metadata.FILE_NAME))
        return kafka.storage.internals.checkpoint.PartitionMetadataFile(file, failures)

    theirs = java_file(tmp_path / "theirs")
    theirs.record(kafka.common.Uuid.fromString(str(ID)))  # type: ignore[attr-defined]
    theirs.maybeFlush()  # type: ignore[attr-defined]
    write_partition_metadata(str(tmp_path), ID)
    name = partition_metadata.FILE_NAME
    assert (tmp_path / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes()
    assert str(java_file(tmp_path).read().topicId().toString()) == str(ID)  # type: ignore[attr-defined]
