"""Every broker setting of Apache Kafka 4.3, by name."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from types import MappingProxyType
from typing import Final

from config.definitions import Setting
from config.settings import (
    groups,
    log,
    metering,
    network,
    node,
    remote,
    replication,
    security,
    share,
    transactions,
)

BROKER_SETTINGS: Final[Mapping[str, Setting]] = MappingProxyType(
    {
        setting.name: setting
        for setting in chain(
            node.SETTINGS,
            network.SETTINGS,
            log.SETTINGS,
            replication.SETTINGS,
            groups.SETTINGS,
            share.SETTINGS,
            transactions.SETTINGS,
            security.SETTINGS,
            metering.SETTINGS,
            remote.SETTINGS,
        )
    }
)

# Settings that mean the same in different units, most precise first.  The first one that is set decides.
_UNITS: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {name: group for group in _UNITS for name in group if name != "log.flush.scheduler.interval.ms"}
)

# Settings that exist only dynamically: they are in no properties file.
DYNAMIC_ONLY: Final[Mapping[str, Setting]] = MappingProxyType(
    {setting.name: setting for setting in replication.DYNAMIC_ONLY}
)

_LISTENER_PREFIX = "listener.name."


def synonyms_of(name: str) -> tuple[str, ...]:
    """Names that can supply the value of a broker setting, in the order they are asked.

    ``listener.name.<listener>.<setting>`` falls back to the setting without its prefix.
    """
    group = SYNONYMS.get(name)
    if group is not None:
        return group
    base = base_name(name)
    return (name,) if base == name else (name, base)


def base_name(name: str) -> str:
    """A setting without the prefix that confines it to one listener (and SASL mechanism)."""
    if not name.startswith(_LISTENER_PREFIX):
        return name
    rest = name[len(_LISTENER_PREFIX) :].partition(".")[2]
    if rest in BROKER_SETTINGS:
        return rest
    unprefixed = rest.partition(".")[2]  # <mechanism>.sasl.jaas.config and its kin
    return unprefixed if unprefixed in BROKER_SETTINGS else rest or name
