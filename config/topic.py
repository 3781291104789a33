"""The configuration of one topic's logs, and the validation of what clients ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from config.broker import BrokerConfig
from config.definitions import Value
from config.errors import ConfigError, invalid_value
from config.topic_settings import SERVER_DEFAULTS, TOPIC_SETTINGS

# Broker settings whose value for topics is resolved from several units.
_RESOLVED = {
    "segment.ms": "log_roll_ms",
    "segment.jitter.ms": "log_roll_jitter_ms",
    "retention.ms": "log_retention_ms",
    "flush.ms": "log_flush_interval_ms",
}
_USE_RETENTION = -2  # local.retention.*: as much as the retention setting beside it


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Every topic setting of Kafka 4.3, typed.  Times in ms, sizes in bytes, -1 is no limit."""

    segment_bytes: int  # internal.segment.bytes, when set, wins
    segment_ms: int
    segment_jitter_ms: int
    segment_index_bytes: int
    flush_messages: int
    flush_ms: int
    retention_bytes: int
    retention_ms: int
    max_message_bytes: int
    index_interval_bytes: int
    delete_retention_ms: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    file_delete_delay_ms: int
    min_cleanable_dirty_ratio: float
    cleanup_policy: frozenset[str]
    unclean_leader_election_enable: bool
    min_insync_replicas: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    preallocate: bool
    message_timestamp_type: str
    message_timestamp_before_max_ms: int
    message_timestamp_after_max_ms: int
    leader_replication_throttled_replicas: tuple[str, ...]
    follower_replication_throttled_replicas: tuple[str, ...]
    remote_storage_enable: bool
    local_retention_ms: int
    local_retention_bytes: int
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool

    @property
    def is_compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @classmethod
    def resolve(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> LogConfig:
        """The topic's own value, else the broker's, else Kafka's default.

        Names that no longer exist are left out: a topic must stay readable with an old setting on it.
        """
        return cls._of(topic_values(overrides, broker))

    @classmethod
    def defaults(cls) -> LogConfig:
        """What a topic without settings has on a broker without settings."""
        return cls._of({name: cast(Value, setting.default) for name, setting in TOPIC_SETTINGS.items()})

    @classmethod
    def _of(cls, values: Mapping[str, Value]) -> LogConfig:
        fields: dict[str, Any] = {TOPIC_SETTINGS[name].attribute: value for name, value in values.items()}
        internal_segment_bytes = fields.pop("internal_segment_bytes")
        if internal_segment_bytes is not None:
            fields["segment_bytes"] = internal_segment_bytes
        fields["cleanup_policy"] = frozenset(fields["cleanup_policy"])
        for unit in ("ms", "bytes"):
            if fields[f"local_retention_{unit}"] == _USE_RETENTION:
                fields[f"local_retention_{unit}"] = fields[f"retention_{unit}"]
        return cls(**fields)


def server_default(name: str, broker: BrokerConfig) -> Value:
    """What a topic setting is on this broker when the topic does not set it."""
    attribute = _RESOLVED.get(name)
    if attribute is not None:
        return cast(int, getattr(broker, attribute))
    server_name = SERVER_DEFAULTS.get(name)
    if server_name is None:
        return cast(Value, TOPIC_SETTINGS[name].default)
    return broker.values[server_name]


def topic_values(overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, Value]:
    """The typed value of every topic setting."""
    values = {}
    for name, setting in TOPIC_SETTINGS.items():
        text = overrides.get(name)
        values[name] = server_default(name, broker) if text is None else setting.parse(text)
    return values


def validate_topic_configs(overrides: Mapping[str, str | None], broker: BrokerConfig) -> None:
    """Refuse a topic's settings (all of them, not only the changed ones) as Kafka's controller does.

    The message of the ConfigError goes to the client with INVALID_CONFIG.
    """
    without_value = [name for name, value in overrides.items() if value is None]
    if without_value:
        names = ",".join(without_value)
        raise ConfigError(f"Null value not supported for topic configs: {names}", setting=without_value[0])
    for name in overrides:
        if name not in TOPIC_SETTINGS:
            raise ConfigError(f"Unknown topic config name: {name}", setting=name, value=overrides[name])
    given = cast("Mapping[str, str]", overrides)
    try:
        values = topic_values(given, broker)
    except ConfigError as error:
        # Clients get Kafka's sentence alone, so that tools print what they print for Kafka.
        raise ConfigError(error.message, setting=error.setting, value=error.value) from None
    shortest, longest = _number(values, "min.compaction.lag.ms"), _number(values, "max.compaction.lag.ms")
    if shortest > longest:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})",
            setting="min.compaction.lag.ms",
            value=str(shortest),
        )
    if values["remote.storage.enable"]:
        _validate_remote_storage(values, broker)


def _validate_remote_storage(values: Mapping[str, Value], broker: BrokerConfig) -> None:
    if not broker.remote_log_storage_system_enable:
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker."
            " Topic cannot be configured with remote log storage.",
            setting="remote.storage.enable",
            value="true",
        )
    if values["cleanup.policy"] not in ((), ("delete",)):
        raise ConfigError(
            "A topic with remote.storage.enable=true must have cleanup.policy=delete or an empty one.",
            setting="cleanup.policy",
        )
    for unit in ("bytes", "ms"):
        total, local = _number(values, f"retention.{unit}"), _number(values, f"local.retention.{unit}")
        name, limit = f"local.retention.{unit}", f"retention.{unit}"
        unlimited = total < 0 if unit == "bytes" else total == -1
        if not unlimited and local != _USE_RETENTION:
            if local == -1:
                raise invalid_value(name, "-1", f"Value must not be -1 as {limit} value is set as {total}.")
            if local > total:
                problem = f"Value must not be more than {limit} property value: {total}"
                raise invalid_value(name, str(local), problem)
        if values["remote.log.copy.disable"] and local not in (_USE_RETENTION, total):
            raise ConfigError(f"With remote.log.copy.disable=true, {name} must equal {limit} or be -2.", setting=name)


def _number(values: Mapping[str, Value], name: str) -> int:
    return cast(int, values[name])
