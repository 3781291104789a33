"""IncrementalAlterConfigs and AlterConfigs as a state machine: ConfigRecords out of the image and a request.

A resource is changed as a whole or not at all, and what would be its configuration afterwards is validated as a
whole, because settings can contradict each other. Error codes and sentences are Kafka's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

from config.broker import BrokerConfig
from config.broker_settings import BROKER_SETTINGS, DYNAMIC_ONLY
from config.definitions import PER_BROKER, READ_ONLY, Kind, Required, Setting, value_text
from config.errors import ConfigError
from config.group import GROUP_SETTINGS, validate_group_configs
from config.topic import validate_topic_configs
from config.topic_settings import TOPIC_SETTINGS
from controller import thread_counts
from controller.image import (
    EMPTY,
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
    ConfigResource,
    MetadataImage,
)
from controller.outcome import Outcome
from controller.topic_names import why_invalid
from controller.topics import check_value_sizes
from protocol.errors import ApiError, ErrorCode
from protocol.messages import alter_configs as legacy
from protocol.messages import incremental_alter_configs as incremental
from protocol.metadata.clear_elr_record import ClearElrRecord
from protocol.metadata.config_record import ConfigRecord
from protocol.schema import Message

MIN_ISR: Final = "min.insync.replicas"
_NOT_YET: Final = {
    RESOURCE_BROKER_LOGGER: "loggers",
    RESOURCE_CLIENT_METRICS: "client metrics",
}


_SETTINGS: Final = {
    RESOURCE_TOPIC: TOPIC_SETTINGS,
    RESOURCE_BROKER: BROKER_SETTINGS,
    RESOURCE_GROUP: GROUP_SETTINGS,
}


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    name: str
    operation: int
    value: str | None


def incremental_alter_configs(
    image: MetadataImage, request: incremental.IncrementalAlterConfigsRequest, *, config: BrokerConfig
) -> Outcome[incremental.IncrementalAlterConfigsResponse]:
    def changes_of(resource: Any, current: Mapping[str, str]) -> list[Change]:
        return [Change(c.name, c.config_operation, c.value) for c in resource.configs]

    records, answers = _alter(image, request.resources, changes_of, config)
    responses = [
        incremental.AlterConfigsResourceResponse(
            error_code=code, error_message=message, resource_type=kind, resource_name=name
        )
        for code, message, (kind, name) in answers
    ]
    return Outcome(
        [] if request.validate_only else records,
        incremental.IncrementalAlterConfigsResponse(responses=responses),
    )


def alter_configs(
    image: MetadataImage, request: legacy.AlterConfigsRequest, *, config: BrokerConfig
) -> Outcome[legacy.AlterConfigsResponse]:
    """The old API replaces a resource's whole configuration: what it does not name is removed."""

    def changes_of(resource: Any, current: Mapping[str, str]) -> list[Change]:
        named = {c.name for c in resource.configs}
        return [Change(c.name, Operation.SET, c.value) for c in resource.configs] + [
            Change(name, Operation.DELETE, None) for name in sorted(current) if name not in named
        ]

    records, answers = _alter(image, request.resources, changes_of, config)
    responses = [
        legacy.AlterConfigsResourceResponse(
            error_code=code, error_message=message, resource_type=kind, resource_name=name
        )
        for code, message, (kind, name) in answers
    ]
    return Outcome([] if request.validate_only else records, legacy.AlterConfigsResponse(responses=responses))


_Answer = tuple[ErrorCode, str | None, ConfigResource]


def _alter(
    image: MetadataImage,
    resources: Sequence[Any],
    changes_of: Callable[[Any, Mapping[str, str]], list[Change]],
    config: BrokerConfig,
) -> tuple[list[Message], list[_Answer]]:
    times = Counter((r.resource_type, r.resource_name) for r in resources)
    records: list[Message] = []
    answers: list[_Answer] = []
    for resource in resources:
        key = (resource.resource_type, resource.resource_name)
        try:
            if times[key] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            current = image.configs.get(key, EMPTY)
            changes = changes_of(resource, current)
            check_entries(changes)
            _check_operations(changes)
            _check_resource(image, key)
            made = _records_for(image, key, current, changes, config)
            if resource.resource_type == RESOURCE_TOPIC and resource.resource_name not in image.topics_by_name:
                raise ApiError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource.resource_name}' does not exist."
                )
        except ApiError as error:
            answers.append((error.code, error.message or None, key))
        else:
            records += made
            answers.append((ErrorCode.NONE, None, key))
    return records, answers


def check_entries(changes: Sequence[Change]) -> None:
    """What can be wrong with a request whatever its resource is; told before anything about the resource."""
    if len({change.name for change in changes}) < len(changes):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [c.name for c in changes if c.value is None and c.operation != Operation.DELETE]
    if nulls:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")


def _check_operations(changes: Sequence[Change]) -> None:
    for change in changes:
        if change.operation not in Operation.__members__.values():
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {change.operation} for {change.name}.")


def _check_resource(image: MetadataImage, resource: ConfigResource) -> None:
    kind, name = resource
    if kind == RESOURCE_TOPIC:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        problem = why_invalid(name)
        if problem is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    elif kind == RESOURCE_BROKER:
        if not name:
            return
        try:
            broker_id = int(name)
        except ValueError:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Invalid broker name {name}") from None
        if broker_id not in image.brokers and broker_id not in image.controllers:
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {broker_id} found.")
    elif kind == RESOURCE_GROUP:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    elif kind in _NOT_YET:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Barnabas does not keep configuration of {_NOT_YET[kind]} yet.")
    else:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")


def _records_for(
    image: MetadataImage,
    resource: ConfigResource,
    current: Mapping[str, str],
    changes: list[Change],
    config: BrokerConfig,
) -> list[Message]:
    kind, name = resource
    settings = _SETTINGS[kind]
    after: dict[str, str | None] = dict(current)
    written: dict[str, str | None] = {}
    for change in changes:
        value = _new_value(settings, current, change)
        if value is None:
            after.pop(change.name, None)
        else:
            after[change.name] = value
        # Kafka writes a broker's setting even if it stays the same: it makes brokers reload files behind it.
        if value != current.get(change.name) or kind == RESOURCE_BROKER:
            written[change.name] = value
    check_value_sizes(value for value in written.values() if value is not None)
    if kind == RESOURCE_TOPIC:
        _validate_topic(after, config)
    elif kind == RESOURCE_GROUP:
        _validate_group({key: value for key, value in after.items() if value is not None}, config)
    else:
        _validate_broker(image, name, changes, after, config)
    records: list[Message] = [
        ConfigRecord(resource_type=kind, resource_name=name, name=key, value=written[key]) for key in sorted(written)
    ]
    if MIN_ISR in written and image.features.is_elr_enabled:
        # Who is eligible to lead depends on this value, so eligibility is established anew; "" is every topic.
        records.append(ClearElrRecord(topic_name=name if kind == RESOURCE_TOPIC else ""))
    return records


def _new_value(settings: Mapping[str, Setting], current: Mapping[str, str], change: Change) -> str | None:
    """The value after the change, None if the setting is removed."""
    if change.operation == Operation.DELETE:
        return None
    assert change.value is not None
    if change.operation == Operation.SET:
        return change.value
    setting = settings.get(change.name)
    if setting is None or setting.kind is not Kind.LIST:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {Operation(change.operation).name} to key {change.name} because its type is not LIST.",
        )
    # As in Kafka, what is not set stands for the setting's own default, whatever the broker is configured with.
    text = current.get(change.name)
    if text is None and not isinstance(setting.default, Required):
        text = value_text(setting.default)
    members = [member for member in _members(text or "") if member]
    for operand in _members(change.value):
        if change.operation == Operation.SUBTRACT:
            if operand in members:
                members.remove(operand)
        elif operand not in members:
            members.append(operand)
    return ",".join(members)


def _members(text: str) -> list[str]:
    """Split as Java does: without trimming, and without empty strings at the end unless there is nothing else."""
    members = text.split(",")
    while len(members) > 1 and not members[-1]:
        members.pop()
    return members


def _validate_topic(after: Mapping[str, str | None], config: BrokerConfig) -> None:
    try:
        validate_topic_configs(after, config)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, error.message) from None


def _validate_group(after: Mapping[str, str], config: BrokerConfig) -> None:
    try:
        validate_group_configs(after, config)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, error.message) from None


def _validate_broker(
    image: MetadataImage,
    name: str,
    changes: list[Change],
    after: Mapping[str, str | None],
    config: BrokerConfig,
) -> None:
    """Unknown names are let through: they may belong to a plug-in, as in Kafka."""
    settings = {**BROKER_SETTINGS, **DYNAMIC_ONLY}
    known = [(change, settings[change.name]) for change in changes if change.name in settings]
    read_only = [change.name for change, setting in known if setting.update_mode == READ_ONLY]
    if read_only:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{', '.join(read_only)}]")
    per_broker = [change.name for change, setting in known if setting.update_mode == PER_BROKER]
    if per_broker and not name:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"[{', '.join(per_broker)}]",
        )
    for change, setting in known:
        value = after.get(change.name)
        if value is not None:
            try:
                setting.parse(value)
            except ConfigError as error:
                raise ApiError(ErrorCode.INVALID_REQUEST, error.message) from None
    if image.features.is_elr_enabled:
        _check_min_isr(name, changes)
    _check_as_a_whole(image, name, {key: value for key, value in after.items() if value is not None}, config)


def _check_as_a_whole(image: MetadataImage, name: str, after: Mapping[str, str], config: BrokerConfig) -> None:
    """Settings that are right one by one may not fit together; this node's own are the ones it can judge."""
    own = image.broker_configs(config.node_id)
    try:
        if not name:
            changed = config.with_dynamic(dynamic_broker=own, dynamic_default=after)
        elif name == str(config.node_id):
            changed = config.with_dynamic(dynamic_broker=after, dynamic_default=image.default_broker_configs)
        else:
            return
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, error.message) from None
    refused = thread_counts.why_not(config, changed)
    if refused is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, refused)


def _check_min_isr(name: str, changes: list[Change]) -> None:
    """With eligible leader replicas the whole cluster agrees on one min.insync.replicas per topic."""
    for change in changes:
        if change.name != MIN_ISR:
            continue
        if name:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
            )
        if change.operation == Operation.DELETE:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
            )
