"""Formatting of log directories, and the refusal of those that belong to someone else.

A single combined node formats its own empty directories at first start, with the files that Apache Kafka's
``format --standalone`` writes. The metadata directory is complete before any other is touched and its
meta.properties is its last file, so a crash half-way leaves something that the next start recognises and finishes.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from config.broker import BrokerConfig
from controller.checkpoint import (
    BOOTSTRAP_FILE,
    PART_SUFFIX,
    SnapshotId,
    snapshot_batches,
    write_snapshot,
)
from controller.endpoints import controller_endpoints, sole_voter
from controller.features import KRAFT_VERSION, bootstrap_feature_records
from controller.record_versions import LATEST_METADATA_VERSION
from protocol.schema import Message
from protocol.uuids import Uuid
from storage.disk import DISK, Disk
from storage.meta_properties import (
    FILE_NAME,
    CorruptMetaProperties,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)

METADATA_LOG_DIRECTORY: Final = "__cluster_metadata-0"
# What may stand in a directory that nobody uses yet: a new file system's, and the lock of this start.
_IGNORED: Final = frozenset({"lost+found", ".lock"})
_HALF_FORMATTED: Final = frozenset(
    {BOOTSTRAP_FILE, BOOTSTRAP_FILE + PART_SUFFIX, METADATA_LOG_DIRECTORY, FILE_NAME + ".tmp"}
)


class FormatError(Exception):
    """A log directory that this node must not use; the message says which, why, and what to do."""


class NodeDirectories(NamedTuple):
    """The identity of this node and the ids of its log directories (path -> id)."""

    cluster_id: str
    node_id: int
    directory_ids: dict[str, Uuid]
    metadata_directory: str
    formatted_now: bool

    @property
    def metadata_directory_id(self) -> Uuid:
        return self.directory_ids[self.metadata_directory]


def ensure_formatted(config: BrokerConfig, *, disk: Disk = DISK, now_ms: int | None = None) -> NodeDirectories:
    """Check every log directory of the node, and format those that are empty where that is safe."""
    metadata_directory = config.metadata_log_dir
    directories = list(dict.fromkeys([metadata_directory, *config.log_dirs]))
    found = {metadata_directory: _read(metadata_directory)}
    for directory in directories[1:]:
        try:
            found[directory] = _read(directory)
        except FormatError:
            if found[metadata_directory] is None or not _is_unreadable(directory):
                raise
            # A disk that broke after the first start: the log manager will report it and the node does without.
    directories = list(found)
    _check_identities(config, {path: meta for path, meta in found.items() if meta is not None})
    unformatted = [directory for directory, meta in found.items() if meta is None]
    for directory in unformatted:
        _refuse_if_used(directory, is_metadata_directory=directory == metadata_directory)
    metadata = found[metadata_directory]
    formatted_now = metadata is None
    if metadata is None:
        known = next((path for path, meta in found.items() if meta is not None), None)
        if known is not None:
            raise FormatError(
                f"{metadata_directory} is empty, but {os.path.join(known, FILE_NAME)} says that this node is part of "
                "a cluster already: the cluster's metadata is missing. Set metadata.log.dir to the directory that "
                f"holds {METADATA_LOG_DIRECTORY}, or restore it"
            )
        _refuse_if_not_alone(config, metadata_directory)
        with _written(metadata_directory):
            metadata = _format_metadata_directory(config, metadata_directory, disk, now_ms)
    ids: dict[str, Uuid] = {}
    for directory in directories:
        meta = metadata if directory == metadata_directory else found[directory]
        if meta is None or meta.directory_id is None:
            meta = MetaProperties(metadata.cluster_id, config.node_id, Uuid.random())
            with _written(directory):
                os.makedirs(directory, exist_ok=True)
                if formatted_now:
                    write_bootstrap(directory, disk, _at(now_ms))
                write_meta_properties(directory, meta, ops=disk)
        assert meta.directory_id is not None
        ids[directory] = meta.directory_id
    _check_distinct(ids)
    return NodeDirectories(metadata.cluster_id, config.node_id, ids, metadata_directory, formatted_now)


def _read(directory: str) -> MetaProperties | None:
    try:
        return read_meta_properties(directory)
    except CorruptMetaProperties as error:
        raise FormatError(f"{error}. Restore the file, or set log.dirs to another directory") from None
    except NotADirectoryError:
        raise FormatError(f"{directory} is not a directory; set log.dirs to one") from None
    except OSError as error:
        raise FormatError(f"{directory} cannot be read: {error}. Repair it, or set log.dirs to another") from None


@contextlib.contextmanager
def _written(directory: str) -> Iterator[None]:
    """What cannot be written is the user's to repair, and told like everything else that is wrong with a directory."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise FormatError(
            f"{directory} cannot be formatted: {reason}. Set log.dirs to a directory that this user may write"
        ) from None


def _is_unreadable(directory: str) -> bool:
    try:
        os.listdir(directory)
        return False
    except OSError:
        return True


def _check_identities(config: BrokerConfig, found: dict[str, MetaProperties]) -> None:
    clusters: dict[str, str] = {}
    for directory, meta in found.items():
        file = os.path.join(directory, FILE_NAME)
        if meta.node_id != config.node_id:
            raise FormatError(
                f"{directory} belongs to node {meta.node_id} ({file}), but node.id is {config.node_id}. Set node.id "
                f"to {meta.node_id}, or log.dirs to a directory of node {config.node_id}"
            )
        clusters.setdefault(meta.cluster_id, directory)
    if len(clusters) > 1:
        (cluster, directory), (other_cluster, other_directory) = list(clusters.items())[:2]
        raise FormatError(
            f"{directory} belongs to cluster {cluster} ({os.path.join(directory, FILE_NAME)}), but "
            f"{other_directory} belongs to cluster {other_cluster} ({os.path.join(other_directory, FILE_NAME)}). "
            "All directories in log.dirs must be of one cluster: remove the wrong one from log.dirs"
        )


def _refuse_if_used(directory: str, *, is_metadata_directory: bool) -> None:
    """Only what is empty, or what an interrupted format of ours left, may be formatted."""
    try:
        names = sorted(set(os.listdir(directory)) - _IGNORED)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise FormatError(f"{directory} is not a directory; set log.dirs to one") from None
    foreign = [name for name in names if name not in _HALF_FORMATTED]
    if METADATA_LOG_DIRECTORY in names and not foreign:
        inner = os.listdir(os.path.join(directory, METADATA_LOG_DIRECTORY))
        first = SnapshotId(0, 0).file_name
        foreign = [
            os.path.join(METADATA_LOG_DIRECTORY, name)
            for name in sorted(inner)
            if not is_metadata_directory or name not in (first, first + PART_SUFFIX)
        ]
    if foreign:
        raise FormatError(
            f"{directory} is not empty (it holds {foreign[0]}) and has no {FILE_NAME}, so it is not a log directory "
            "of this node. Set log.dirs to an empty directory, or move what is in there elsewhere"
        )


def _refuse_if_not_alone(config: BrokerConfig, directory: str) -> None:
    """A node of a larger cluster that formatted itself would start a second cluster beside the first."""
    reason = None
    voters = [voter.id for voter in config.controller_quorum_voters]
    if "controller" not in config.process_roles or "broker" not in config.process_roles:
        reason = f"process.roles is {','.join(config.process_roles)}"
    elif voters and voters != [config.node_id]:
        reason = f"controller.quorum.voters names {', '.join(map(str, voters))}"
    elif len(config.controller_quorum_bootstrap_servers) > 1:
        reason = "controller.quorum.bootstrap.servers names several servers"
    if reason is not None:
        raise FormatError(
            f"{directory} is not formatted, and {reason}: only a single node that is both broker and controller "
            "formats its own directories. Format them with the cluster's id first"
        )


def _format_metadata_directory(config: BrokerConfig, directory: str, disk: Disk, now_ms: int | None) -> MetaProperties:
    now = _at(now_ms)
    meta = MetaProperties(str(Uuid.random()), config.node_id, Uuid.random())
    assert meta.directory_id is not None
    log_directory = os.path.join(directory, METADATA_LOG_DIRECTORY)
    os.makedirs(log_directory, exist_ok=True)
    write_bootstrap(directory, disk, now)
    voters = sole_voter(config.node_id, meta.directory_id, controller_endpoints(config))
    batches = snapshot_batches(
        [],
        metadata_version=LATEST_METADATA_VERSION,
        epoch=0,
        now_ms=now,
        last_contained_timestamp=now,
        kraft_version=KRAFT_VERSION,
        voters=voters,
    )
    write_snapshot(os.path.join(log_directory, SnapshotId(0, 0).file_name), batches, disk)
    write_meta_properties(directory, meta, ops=disk)
    disk.fsync_dir(os.path.dirname(os.path.abspath(directory)))
    return meta


def write_bootstrap(
    directory: str, disk: Disk, now: int, records: list[Message] | None = None, level: int = LATEST_METADATA_VERSION
) -> None:
    """bootstrap.checkpoint: what the first leader of a new cluster writes into the log, by default Kafka's levels."""
    batches = snapshot_batches(
        bootstrap_feature_records() if records is None else records,
        metadata_version=level,
        epoch=0,
        now_ms=now,
        last_contained_timestamp=0,
        kraft_version=0,
        voters=None,
    )
    path = os.path.join(directory, BOOTSTRAP_FILE)
    write_snapshot(path, batches, disk)
    os.chmod(path, 0o644)


def _check_distinct(ids: dict[str, Uuid]) -> None:
    seen: dict[Uuid, str] = {}
    for directory, directory_id in ids.items():
        other = seen.setdefault(directory_id, directory)
        if other != directory:
            raise FormatError(
                f"{other} and {directory} have the same directory.id {directory_id} in their {FILE_NAME}: one is a "
                "copy of the other. Remove one of them from log.dirs"
            )


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _at(given_ms: int | None) -> int:
    return now_ms() if given_ms is None else given_ms
