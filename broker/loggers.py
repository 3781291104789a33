"""The broker's loggers as the resource BROKER_LOGGER shows and changes them (KIP-412), with Kafka's level names."""

from __future__ import annotations

import logging
from typing import Final

ROOT: Final = "root"
TRACE: Final = 5

LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": TRACE,
}


def levels() -> dict[str, str]:
    """Every logger by name with the level in force, the root first."""
    names = sorted(name for name, logger in _known().items() if isinstance(logger, logging.Logger))
    return {ROOT: level_name(logging.root.level)} | {
        name: level_name(logging.getLogger(name).getEffectiveLevel()) for name in names
    }


def exists(name: str) -> bool:
    return name == ROOT or isinstance(_known().get(name), logging.Logger)


def set_level(name: str, level: str) -> None:
    _logger(name).setLevel(LEVELS[level])


def unset_level(name: str) -> None:
    """Back to what the nearest logger above says."""
    _logger(name).setLevel(logging.NOTSET)


def level_name(level: int) -> str:
    """The most verbose of Kafka's levels that a Python level still lets through."""
    return next((name for name, number in LEVELS.items() if level >= number), "TRACE")


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)


def _known() -> dict[str, logging.Logger | logging.PlaceHolder]:
    return logging.root.manager.loggerDict
