"""Settings of a single group (`kafka-configs --entity-type groups`), and what Kafka accepts for them.

Most of them stand for the broker setting of the same name after "group.", which is their default, and are held
within the limits that the broker sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from config.broker import BrokerConfig
from config.broker_settings import BROKER_SETTINGS
from config.checks import OneOf
from config.definitions import CLUSTER_WIDE, Importance, Kind, Setting, Value
from config.errors import ConfigError

FROM_BROKER: Final = (
    "consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.assignment.interval.ms",
    "share.session.timeout.ms",
    "share.heartbeat.interval.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "share.assignment.interval.ms",
    "streams.session.timeout.ms",
    "streams.heartbeat.interval.ms",
    "streams.num.standby.replicas",
    "streams.initial.rebalance.delay.ms",
    "streams.assignment.interval.ms",
)

_OWN: Final = (
    Setting(
        "share.auto.offset.reset",
        Kind.STRING,
        "latest",
        Importance.MEDIUM,
        CLUSTER_WIDE,
        None,
        "Where a share group starts to read.",
    ),
    Setting(
        "share.isolation.level",
        Kind.STRING,
        "read_uncommitted",
        Importance.MEDIUM,
        CLUSTER_WIDE,
        OneOf("read_committed", "read_uncommitted"),
        "Whether a share group sees records of open and aborted transactions.",
    ),
    Setting(
        "share.renew.acknowledge.enable",
        Kind.BOOLEAN,
        True,
        Importance.MEDIUM,
        CLUSTER_WIDE,
        None,
        "Whether a lock on a record may be renewed.",
    ),
)


def _like_the_brokers(name: str) -> Setting:
    behind = BROKER_SETTINGS[f"group.{name}"]
    return Setting(name, behind.kind, behind.default, behind.importance, CLUSTER_WIDE, behind.check, behind.doc)


OWN_SETTINGS: Final[Mapping[str, Setting]] = {setting.name: setting for setting in _OWN}
GROUP_SETTINGS: Final[Mapping[str, Setting]] = {
    **{name: _like_the_brokers(name) for name in FROM_BROKER},
    **OWN_SETTINGS,
}

# The one limit whose name does not follow from the setting's.
_MAX_NAMES: Final = {"streams.num.standby.replicas": "group.streams.max.standby.replicas"}


def validate_group_configs(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Refuse a group's settings (all of them, not only the changed ones) as Kafka's controller does."""
    for name in overrides:
        if name not in GROUP_SETTINGS:
            raise ConfigError(f"Unknown group config name: {name}", setting=name, value=overrides[name])
    given: dict[str, Value] = {}
    for name, text in overrides.items():
        try:
            given[name] = GROUP_SETTINGS[name].parse(text)
        except ConfigError as error:
            raise ConfigError(error.message, setting=name, value=text) from None
    for name, value in given.items():
        _check_limits(name, value, broker)
    for kind in ("consumer", "share", "streams"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if _number(session, given, broker) <= _number(heartbeat, given, broker):
            raise ConfigError(f"{session} must be greater than {heartbeat}", setting=session)


def _check_limits(name: str, value: Value, broker: BrokerConfig) -> None:
    kind, _, rest = name.partition(".")
    lowest, highest = f"group.{kind}.min.{rest}", _MAX_NAMES.get(name, f"group.{kind}.max.{rest}")
    if lowest in broker.values and cast(int, value) < cast(int, broker.values[lowest]):
        raise ConfigError(f"{name} must be greater than or equal to {lowest}", setting=name)
    if highest in broker.values and cast(int, value) > cast(int, broker.values[highest]):
        raise ConfigError(f"{name} must be less than or equal to {highest}", setting=name)


def _number(name: str, given: Mapping[str, Value], broker: BrokerConfig) -> int:
    value = given.get(name)
    return cast(int, broker.values[f"group.{name}"] if value is None else value)
