"""Settings of the resources that are neither topics nor brokers: loggers, client metrics subscriptions, groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from broker import loggers
from config.broker import BrokerConfig
from config.definitions import Kind, Required, value_text
from config.describe import ConfigEntry, ConfigSource, ConfigSynonym, describe_broker
from config.group import FROM_BROKER, OWN_SETTINGS


class _Own(NamedTuple):
    """A setting whose default is its own, not a broker setting's."""

    name: str
    default: str
    kind: Kind


# KIP-714
_CLIENT_METRICS: Final = (
    _Own("interval.ms", "300000", Kind.INT),
    _Own("match", "", Kind.LIST),
    _Own("metrics", "", Kind.LIST),
)


def logger_entries() -> list[ConfigEntry]:
    source = ConfigSource.DYNAMIC_BROKER_LOGGER
    return [
        ConfigEntry(name, level, False, source, False, (), Kind.UNKNOWN, None)
        for name, level in loggers.levels().items()
    ]


def client_metrics_entries(overrides: Mapping[str, str]) -> list[ConfigEntry]:
    entries = []
    for setting in _CLIENT_METRICS:
        default = ConfigEntry(setting.name, setting.default, False, ConfigSource.DEFAULT, False, (), setting.kind, None)
        entries.append(_overridden(default, overrides, ConfigSource.CLIENT_METRICS))
    return entries


def group_entries(overrides: Mapping[str, str], config: BrokerConfig) -> list[ConfigEntry]:
    behind = {entry.name: entry for entry in describe_broker(config)}
    entries = []
    for name in FROM_BROKER:
        broker_entry = behind.get(f"group.{name}")
        if broker_entry is not None:
            entries.append(
                _overridden(broker_entry._replace(name=name, read_only=False), overrides, ConfigSource.GROUP)
            )
    for setting in OWN_SETTINGS.values():
        assert not isinstance(setting.default, Required)
        text = value_text(setting.default)
        synonyms = (ConfigSynonym(setting.name, text, ConfigSource.DEFAULT),)
        default = ConfigEntry(setting.name, text, False, ConfigSource.DEFAULT, False, synonyms, setting.kind, None)
        entries.append(_overridden(default, overrides, ConfigSource.GROUP))
    return entries


def _overridden(entry: ConfigEntry, overrides: Mapping[str, str], source: ConfigSource) -> ConfigEntry:
    value = overrides.get(entry.name)
    if value is None:
        return entry
    own = ConfigSynonym(entry.name, value, source)
    return entry._replace(value=value, source=source, synonyms=(own, *entry.synonyms))
