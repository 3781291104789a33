"""Changing the levels of this broker's loggers (KIP-412). They last until the process ends, as in Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from broker import loggers
from controller.configs import Operation
from protocol.errors import ApiError, ErrorCode
from protocol.messages.incremental_alter_configs import AlterableConfig


def alter_loggers(changes: Sequence[AlterableConfig], *, validate_only: bool) -> None:
    """All of the changes or none: ApiError before the first one is made."""
    _check(changes)
    if validate_only:
        return
    for change in changes:
        if change.config_operation == Operation.SET:
            assert change.value is not None
            loggers.set_level(change.name, change.value)
        else:
            loggers.unset_level(change.name)


def _check(changes: Sequence[AlterableConfig]) -> None:
    nulls = [c.name for c in changes if c.value is None and c.config_operation != Operation.DELETE]
    if nulls:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(nulls)}")
    if len({change.name for change in changes}) < len(changes):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    for change in changes:
        check = _CHECKS.get(change.config_operation)
        if check is None:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Unknown operation type {change.config_operation} for {change.name}."
            )
        check(change)


def _check_set(change: AlterableConfig) -> None:
    _check_exists(change)
    if change.value not in loggers.LEVELS:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(loggers.LEVELS)}",
        )


def _check_delete(change: AlterableConfig) -> None:
    _check_exists(change)
    if change.name == loggers.ROOT:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Removing the log level of the {change.name} logger is not allowed")


def _check_exists(change: AlterableConfig) -> None:
    if not loggers.exists(change.name):
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")


def _refuse_list_operation(change: AlterableConfig) -> None:
    raise ApiError(
        ErrorCode.INVALID_REQUEST,
        f"{Operation(change.config_operation).name} operation is not allowed for the BROKER_LOGGER resource",
    )


_CHECKS: Final[dict[int, Callable[[AlterableConfig], None]]] = {
    Operation.SET: _check_set,
    Operation.DELETE: _check_delete,
    Operation.APPEND: _refuse_list_operation,
    Operation.SUBTRACT: _refuse_list_operation,
}
