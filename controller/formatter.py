"""``storage format`` and ``storage info``: preparing the log directories of a node before its first start.

The files are those of Apache Kafka 4.3.1's storage tool. In every directory meta.properties is written last: a
directory that has it is complete, and one that has it not may be formatted again. What a person asked for is checked
before anything is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from config.broker import BrokerConfig
from controller.checkpoint import SnapshotId, snapshot_batches, write_snapshot
from controller.endpoints import controller_endpoints
from controller.feature_updates import why_dependent
from controller.features import KRAFT_VERSION, SUPPORTED_FEATURES
from controller.image import KRAFT_VERSION_FEATURE, METADATA_VERSION_FEATURE
from controller.record_versions import LATEST_METADATA_VERSION, SCRAM_LEVEL
from controller.release_versions import FEATURE_NAMES, NAME_OF_LEVEL, default_levels, level_of
from controller.scram_credentials import ScramError, parse_argument
from controller.storage_format import METADATA_LOG_DIRECTORY, FormatError, now_ms, write_bootstrap
from controller.voter_arguments import DynamicVoter, parse_voters, voters_record
from protocol.metadata.feature_level_record import FeatureLevelRecord
from protocol.metadata.user_scram_credential_record import UserScramCredentialRecord
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

Say = Callable[[str], None]

_ONE_OF: Final = "--standalone, --initial-controllers, or --no-initial-controllers"


class FormatOptions(NamedTuple):
    """What the command line says. The ways to name the first voters exclude each other."""

    cluster_id: str
    ignore_formatted: bool = False
    release_version: str | None = None
    features: Sequence[str] = ()
    scram: Sequence[str] = ()
    standalone: bool = False
    no_initial_controllers: bool = False
    initial_controllers: str | None = None


def format_storage(config: BrokerConfig, options: FormatOptions, say: Say, *, disk: Disk = DISK) -> None:
    """Raises FormatError with Kafka's sentence where Kafka has one."""
    is_dynamic = not config.controller_quorum_voters
    if not is_dynamic and (options.standalone or options.initial_controllers is not None):
        raise FormatError(
            "You cannot specify controller.quorum.voters and format the node with --initial-controllers or "
            "--standalone. If you want to use dynamic quorum, please remove controller.quorum.voters and specify "
            "controller.quorum.bootstrap.servers instead."
        )
    voters = _initial_voters(config, options)
    if "controller" in config.process_roles and is_dynamic and voters is None and not options.no_initial_controllers:
        raise FormatError(
            "Because controller.quorum.voters is not set on this controller, you must specify one of the following: "
            f"{_ONE_OF}."
        )
    level, levels = _feature_levels(options, is_dynamic)
    records = _bootstrap_records(level, levels, options.scram)
    directories = sorted({*config.log_dirs, config.metadata_log_dir})
    empty = _unformatted(directories, config, options)
    if not empty:
        say("All of the log directories are already formatted.")
        return
    say(f"Bootstrap metadata: {_shown(records, level)}")
    release = NAME_OF_LEVEL[level]
    for directory in empty:
        is_metadata = directory == config.metadata_log_dir
        voter = None if voters is None else voters.get(config.node_id)
        say(f"Formatting {_kind(is_metadata, voters, voter)} {directory} with metadata.version {release}.")
        directory_id = voter.directory_id if is_metadata and voter is not None else Uuid.random()
        os.makedirs(directory, exist_ok=True)
        now = now_ms()
        write_bootstrap(directory, disk, now, records, level)
        if is_metadata and voters is not None:
            _write_voters(directory, voters, levels[KRAFT_VERSION_FEATURE], config, level, now, disk)
        write_meta_properties(directory, MetaProperties(options.cluster_id, config.node_id, directory_id), ops=disk)


def random_id() -> str:
    """For a cluster, or for the directory of a voter."""
    return str(Uuid.random())


def _initial_voters(config: BrokerConfig, options: FormatOptions) -> dict[int, DynamicVoter] | None:
    if options.initial_controllers is not None:
        try:
            return parse_voters(options.initial_controllers)
        except ValueError as error:
            raise FormatError(str(error)) from None
    if not options.standalone:
        return None
    if "controller" not in config.process_roles:
        raise FormatError("You can only use --standalone on a controller.")
    endpoint = controller_endpoints(config)[0]
    return {config.node_id: DynamicVoter(config.node_id, endpoint.host, endpoint.port, Uuid.random())}


def _feature_levels(options: FormatOptions, is_dynamic: bool) -> tuple[int, dict[str, int]]:
    """metadata.version, and the levels of all other features."""
    given = dict(map(parse_feature, options.features))
    try:
        if METADATA_VERSION_FEATURE in given:
            if options.release_version is not None:
                raise FormatError("Use --release-version instead of --feature metadata.version=X to avoid ambiguity.")
            level = given.pop(METADATA_VERSION_FEATURE)
            if level not in NAME_OF_LEVEL:
                low, high = min(NAME_OF_LEVEL), max(NAME_OF_LEVEL)
                raise FormatError(
                    f"No MetadataVersion with feature level {level}. Valid feature levels are from {low} to {high}."
                )
        elif options.release_version is not None:
            level = level_of(options.release_version)
        else:
            level = LATEST_METADATA_VERSION
    except ValueError as error:
        raise FormatError(str(error)) from None
    for name in given:
        if name not in FEATURE_NAMES:
            raise FormatError(f"Unsupported feature: {name}. Supported features are: {', '.join(FEATURE_NAMES)}")
    kraft = _kraft_version(given.get(KRAFT_VERSION_FEATURE), is_dynamic)
    levels = {**default_levels(level), **given, KRAFT_VERSION_FEATURE: kraft}
    for name, wanted in sorted(levels.items()):
        if not SUPPORTED_FEATURES[name].min_version <= wanted <= SUPPORTED_FEATURES[name].max_version:
            raise FormatError(f"No feature:{name} with feature level {wanted}")
        lacking = why_dependent(name, wanted, {**levels, METADATA_VERSION_FEATURE: level})
        if lacking is not None:
            raise FormatError(lacking)
    return level, levels


def parse_feature(text: str) -> tuple[str, int]:
    name, equals, level = text.partition("=")
    if not equals:
        raise FormatError(f"Can't parse feature=level string {text}: equals sign not found.")
    try:
        return name.strip(), int(level.strip())
    except ValueError:
        raise FormatError(
            f"Can't parse feature=level string {text}: unable to parse {level.strip()} as a short."
        ) from None


def _kraft_version(given: int | None, is_dynamic: bool) -> int:
    if given == 0 and is_dynamic:
        raise FormatError(
            f"Cannot set kraft.version to 0 if controller.quorum.voters is empty and one of the flags {_ONE_OF} is "
            "used. For dynamic controllers support, try removing the --feature flag for kraft.version."
        )
    if given and not is_dynamic:
        raise FormatError(
            f"Cannot set kraft.version to {given} unless controller.quorum.voters is empty and one of the flags "
            f"{_ONE_OF} is used. For dynamic controllers support, try using one of {_ONE_OF} and removing "
            "controller.quorum.voters."
        )
    if given is not None:
        return given
    return KRAFT_VERSION if is_dynamic else 0


def _bootstrap_records(level: int, levels: Mapping[str, int], scram: Sequence[str]) -> list[Message]:
    records: list[Message] = [FeatureLevelRecord(name=METADATA_VERSION_FEATURE, feature_level=level)]
    records += [
        FeatureLevelRecord(name=name, feature_level=wanted)
        for name, wanted in sorted(levels.items())
        if wanted > 0 and name != KRAFT_VERSION_FEATURE  # that one is in the log's control records
    ]
    if scram and level < SCRAM_LEVEL:
        raise FormatError(f"SCRAM is only supported in metadata.version {NAME_OF_LEVEL[SCRAM_LEVEL]} or later.")
    try:
        records += map(parse_argument, scram)
    except ScramError as error:
        raise FormatError(str(error)) from None
    return records


def _unformatted(directories: list[str], config: BrokerConfig, options: FormatOptions) -> list[str]:
    """The directories to format, after all of them were found to be this node's or nobody's."""
    formatted, empty = [], []
    for directory in directories:
        try:
            meta = read_meta_properties(directory)
        except CorruptMetaProperties as error:
            raise FormatError(str(error)) from None
        except OSError as error:
            raise FormatError(f"{directory} cannot be read: {error}") from None
        if meta is None:
            empty.append(directory)
            continue
        formatted.append(directory)
        path = os.path.join(directory, FILE_NAME)
        for what, found, expected in (
            ("cluster.id", meta.cluster_id, options.cluster_id),
            ("node.id", meta.node_id, config.node_id),
        ):
            if found != expected:
                raise FormatError(f"Invalid {what} in: {path}. Expected {expected}, but read {found}")
    if formatted and not options.ignore_formatted:
        raise FormatError(
            f"Log directory {formatted[0]} is already formatted. Use --ignore-formatted to ignore this directory and "
            "format the others."
        )
    return empty


def _kind(is_metadata: bool, voters: Mapping[int, DynamicVoter] | None, voter: DynamicVoter | None) -> str:
    if not is_metadata:
        return "data directory"
    if voters is None:
        return "metadata directory"
    return "dynamic metadata directory" if voter is None else "dynamic metadata voter directory"


def _write_voters(
    directory: str,
    voters: Mapping[int, DynamicVoter],
    kraft_version: int,
    config: BrokerConfig,
    level: int,
    now: int,
    disk: Disk,
) -> None:
    """The first snapshot of the metadata log: no metadata yet, only who votes."""
    log_directory = os.path.join(directory, METADATA_LOG_DIRECTORY)
    os.makedirs(log_directory, exist_ok=True)
    batches = snapshot_batches(
        [],
        metadata_version=level,
        epoch=0,
        now_ms=now,
        last_contained_timestamp=now,
        kraft_version=kraft_version,
        voters=voters_record(voters, config.controller_listener_names[0]),
    )
    write_snapshot(os.path.join(log_directory, SnapshotId(0, 0).file_name), batches, disk)


def _shown(records: list[Message], level: int) -> str:
    """As Kafka prints it."""
    listed = ", ".join(f"ApiMessageAndVersion({_record(record)} at version 0)" for record in records)
    return f"BootstrapMetadata(records=[{listed}], metadataVersionLevel={level}, source=format command)"


def _record(record: Any) -> str:
    if isinstance(record, FeatureLevelRecord):
        return f"FeatureLevelRecord(name='{record.name}', featureLevel={record.feature_level})"
    assert isinstance(record, UserScramCredentialRecord)
    return (
        f"UserScramCredentialRecord(name='{record.name}', mechanism={record.mechanism}, "
        f"salt={_bytes(record.salt)}, storedKey={_bytes(record.stored_key)}, "
        f"serverKey={_bytes(record.server_key)}, iterations={record.iterations})"
    )


def _bytes(data: bytes) -> list[int]:
    """Java's bytes are signed."""
    return [byte - 256 if byte > 127 else byte for byte in data]


def storage_info(config: BrokerConfig, say: Say) -> bool:
    """What the log directories are; whether all is well with them."""
    problems: list[str] = []
    found: list[str] = []
    first: MetaProperties | None = None
    for directory in sorted({*config.log_dirs, config.metadata_log_dir}):
        if not os.path.isdir(directory):
            problems.append(f"{directory} {'is not a directory' if os.path.exists(directory) else 'does not exist'}")
            continue
        found.append(directory)
        try:
            meta = read_meta_properties(directory)
        except (CorruptMetaProperties, OSError) as error:
            problems.append(f"Error loading {os.path.join(directory, FILE_NAME)}: {error}")
            continue
        if meta is None:
            problems.append(f"{directory} is not formatted.")
        elif first is None:
            first = meta
        elif meta.cluster_id != first.cluster_id:
            problems.append("Mismatched cluster IDs between storage directories.")
        elif meta.node_id != first.node_id:
            problems.append("Mismatched node IDs between storage directories.")
    if found:
        say("Found log directory:" if len(found) == 1 else "Found log directories:")
        for directory in found:
            say(f"  {directory}")
        say("")
    if first is not None:
        if first.version == 0:
            problems.append(
                "The kafka configuration file appears to be for a cluster in KRaft mode, but the directories are "
                "formatted for legacy mode."
            )
        say(f"Found metadata: {{{_properties(first)}}}")
        say("")
    if problems:
        say("Found problem:" if len(problems) == 1 else "Found problems:")
        for problem in problems:
            say(f"  {problem}")
        say("")
    return not problems


def _properties(meta: MetaProperties) -> str:
    shown = {"cluster.id": meta.cluster_id, "node.id": meta.node_id, "version": meta.version}
    if meta.version == 0:
        shown["broker.id"] = shown.pop("node.id")
    if meta.directory_id is not None:
        shown["directory.id"] = str(meta.directory_id)
    return ", ".join(f"{name}={value}" for name, value in sorted(shown.items()))
