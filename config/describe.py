"""The answers to DescribeConfigs: every setting with its value, source and synonyms, as Kafka gives them.

``synonyms`` lists, strongest first, every value that was set for a setting under any of its names.  Two
habits of Kafka look odd and are kept, because tools show them: synonyms before the first one of the asked
name are dropped, so ``segment.ms`` that comes from ``log.roll.hours`` has none and counts as a default; and
an unknown name is treated as a secret.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from config.broker import BrokerConfig
from config.broker_settings import BROKER_SETTINGS, DYNAMIC_ONLY, base_name, synonyms_of
from config.definitions import READ_ONLY, Kind, Required, value_text
from config.topic import topic_values
from config.topic_settings import SERVER_DEFAULTS, TOPIC_SETTINGS


class ConfigSource(IntEnum):
    """Where a value comes from; the numbers are those of DescribeConfigs."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One setting of one resource.  ``value`` and the values of ``synonyms`` are None if sensitive."""

    name: str
    value: str | None
    read_only: bool
    source: ConfigSource
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    kind: Kind
    doc: str | None


class _Layers(NamedTuple):
    """The places a broker setting can be set in, strongest first."""

    dynamic_broker: Mapping[str, str]
    dynamic_default: Mapping[str, str]
    static: Mapping[str, str]

    def synonyms(self, name: str, sensitive: bool) -> tuple[ConfigSynonym, ...]:
        names = synonyms_of(name)
        found = []
        for layer, source in (
            (self.dynamic_broker, ConfigSource.DYNAMIC_BROKER),
            (self.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
            (self.static, ConfigSource.STATIC_BROKER),
        ):
            for synonym in names:
                text = layer.get(synonym)
                if text is not None:
                    found.append(ConfigSynonym(synonym, None if sensitive else text, source))
        for synonym in names:
            setting = BROKER_SETTINGS.get(synonym)
            if setting is None or setting.default is None or isinstance(setting.default, Required):
                continue
            text = None if sensitive else value_text(setting.default)
            found.append(ConfigSynonym(synonym, text, ConfigSource.DEFAULT))
        while found and found[0].name != name:
            del found[0]
        return tuple(found)


def describe_topic(
    overrides: Mapping[str, str],
    broker: BrokerConfig,
    dynamic_broker: Mapping[str, str] | None = None,
    dynamic_default: Mapping[str, str] | None = None,
) -> list[ConfigEntry]:
    """Every topic setting.  The dynamic layers are the broker's own unless others are given."""
    broker, layers = _layered(broker, dynamic_broker, dynamic_default)
    values = topic_values(overrides, broker)
    entries = []
    for name, setting in TOPIC_SETTINGS.items():
        if setting.internal and name not in overrides:
            continue
        text = value_text(values[name])
        server_name = SERVER_DEFAULTS.get(name)
        synonyms = () if server_name is None else layers.synonyms(server_name, setting.sensitive)
        if name in overrides:
            synonyms = (ConfigSynonym(name, text, ConfigSource.TOPIC), *synonyms)
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        entries.append(
            ConfigEntry(name, text, False, source, setting.sensitive, tuple(synonyms), setting.kind, setting.doc)
        )
    return entries


def describe_broker(
    broker: BrokerConfig,
    dynamic_broker: Mapping[str, str] | None = None,
    dynamic_default: Mapping[str, str] | None = None,
) -> list[ConfigEntry]:
    """Every broker setting, and whatever else was set, of one broker."""
    broker, layers = _layered(broker, dynamic_broker, dynamic_default)
    set_names = {**layers.static, **layers.dynamic_default, **layers.dynamic_broker}
    names = [name for name, setting in BROKER_SETTINGS.items() if not setting.internal or name in set_names]
    names += [name for name in set_names if name not in BROKER_SETTINGS]
    entries = []
    for name in names:
        kind, sensitive = _kind(name)
        if sensitive:
            text = None
        elif name in BROKER_SETTINGS:
            text = value_text(broker.values[name])
        else:
            text = set_names[name]
        synonyms = layers.synonyms(name, sensitive)
        source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
        entries.append(ConfigEntry(name, text, _is_read_only(name), source, sensitive, synonyms, kind, _doc(name)))
    return entries


def describe_cluster_default(dynamic_default: Mapping[str, str]) -> list[ConfigEntry]:
    """The dynamic settings of all brokers, which is the broker resource without a name."""
    entries = []
    for name, raw in dynamic_default.items():
        kind, sensitive = _kind(name)
        text = None if sensitive else raw
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        synonyms = (ConfigSynonym(name, text, source),)
        entries.append(ConfigEntry(name, text, _is_read_only(name), source, sensitive, synonyms, kind, _doc(name)))
    return entries


def _layered(
    broker: BrokerConfig,
    dynamic_broker: Mapping[str, str] | None,
    dynamic_default: Mapping[str, str] | None,
) -> tuple[BrokerConfig, _Layers]:
    own = broker.dynamic_broker if dynamic_broker is None else dynamic_broker
    shared = broker.dynamic_default if dynamic_default is None else dynamic_default
    if own != broker.dynamic_broker or shared != broker.dynamic_default:
        broker = broker.with_dynamic(dynamic_broker=own, dynamic_default=shared)
    return broker, _Layers(own, shared, broker.raw)


def _kind(name: str) -> tuple[Kind, bool]:
    """The type of a broker setting and whether it is secret; what is unknown might be."""
    if name in DYNAMIC_ONLY:
        return Kind.LONG, False
    setting = BROKER_SETTINGS.get(base_name(name))
    return (Kind.UNKNOWN, True) if setting is None else (setting.kind, setting.sensitive)


def _is_read_only(name: str) -> bool:
    setting = BROKER_SETTINGS.get(name)
    return name not in DYNAMIC_ONLY if setting is None else setting.update_mode == READ_ONLY


def _doc(name: str) -> str | None:
    setting = BROKER_SETTINGS.get(name)
    return None if setting is None else setting.doc
