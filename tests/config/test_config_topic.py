"""A topic's configuration: precedence over the broker, and what is refused with which words."""

from __future__ import annotations

import pytest

from config.broker import BrokerConfig
from config.errors import ConfigError
from config.topic import LogConfig, validate_topic_configs

BROKER = BrokerConfig.from_map({})

# Settings of a topic, and what Kafka's LogConfig.validate says to them (None: it accepts them).
VERDICTS: list[tuple[dict[str, str], str | None]] = [
    ({"nope": "1"}, "Unknown topic config name: nope"),
    ({"retention.ms": "abc"}, "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
    ({"retention.ms": "-2"}, "Invalid value -2 for configuration retention.ms: Value must be at least -1"),
    ({"retention.ms": " 5 "}, None),
    ({"retention.ms": ""}, "Invalid value  for configuration retention.ms: Not a number of type LONG"),
    (
        {"segment.bytes": "1000"},
        "Invalid value 1000 for configuration segment.bytes: Value must be at least 1048576",
    ),
    ({"segment.ms": "+5"}, None),
    ({"segment.ms": "1_000"}, "Invalid value 1_000 for configuration segment.ms: Not a number of type LONG"),
    (
        {"cleanup.policy": "foo"},
        "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
    ),
    ({"cleanup.policy": "compact,compact"}, None),
    ({"cleanup.policy": ""}, None),
    ({"cleanup.policy": "delete, compact"}, None),
    ({"cleanup.policy": "delete,,compact"}, "Configuration 'cleanup.policy' values must not be empty."),
    (
        {"compression.type": "none"},
        "Invalid value none for configuration compression.type: String must be one of:"
        " uncompressed, zstd, lz4, snappy, gzip, producer",
    ),
    (
        {"compression.gzip.level": "10"},
        "Invalid value 10 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
    ),
    (
        {"compression.lz4.level": "18"},
        "Invalid value 18 for configuration compression.lz4.level: Value must be no more than 17",
    ),
    (
        {"preallocate": "yes"},
        "Invalid value yes for configuration preallocate: Expected value to be either true or false",
    ),
    ({"preallocate": " TRUE "}, None),
    (
        {"min.cleanable.dirty.ratio": "-1"},
        "Invalid value -1.0 for configuration min.cleanable.dirty.ratio: Value must be at least 0",
    ),
    (
        {"min.cleanable.dirty.ratio": "1e999"},
        "Invalid value Infinity for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
    ),
    ({"min.cleanable.dirty.ratio": "NaN"}, None),
    (
        {"message.timestamp.type": "createtime"},
        "Invalid value createtime for configuration message.timestamp.type:"
        " String must be one of: CreateTime, LogAppendTime",
    ),
    (
        {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
        "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
    ),
    ({"leader.replication.throttled.replicas": "*"}, None),
    ({"leader.replication.throttled.replicas": "0:1,1:2"}, None),
    ({"leader.replication.throttled.replicas": ""}, None),
    (
        {"leader.replication.throttled.replicas": "0:1,*"},
        "Invalid value [0:1, *] for configuration leader.replication.throttled.replicas:"
        " leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the"
        " following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
    ),
    (
        {"remote.storage.enable": "true"},
        "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
    ),
    ({"remote.storage.enable": "false"}, None),
    ({"remote.log.copy.disable": "true"}, None),
    ({"local.retention.ms": "99999999999", "retention.ms": "5"}, None),
    ({"internal.segment.bytes": "100"}, None),
]


@pytest.mark.parametrize(("settings", "message"), VERDICTS)
def test_validation(settings: dict[str, str], message: str | None) -> None:
    if message is None:
        validate_topic_configs(settings, BROKER)
        return
    with pytest.raises(ConfigError) as caught:
        validate_topic_configs(settings, BROKER)
    assert str(caught.value) == message, "a client sees Kafka's sentence and nothing else"
    assert caught.value.setting in settings


def test_a_setting_without_value_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^Null value not supported for topic configs: segment.ms$"):
        validate_topic_configs({"segment.ms": None}, BROKER)


def test_the_broker_takes_part_in_the_validation() -> None:
    broker = BrokerConfig.from_map({"log.cleaner.max.compaction.lag.ms": "100"})
    with pytest.raises(ConfigError, match="conflict topic config setting"):
        validate_topic_configs({"min.compaction.lag.ms": "200"}, broker)


@pytest.mark.parametrize(
    ("settings", "setting"),
    [
        ({"cleanup.policy": "compact"}, "cleanup.policy"),
        ({"retention.ms": "10", "local.retention.ms": "11"}, "local.retention.ms"),
        ({"retention.ms": "10", "local.retention.ms": "-1"}, "local.retention.ms"),
        ({"retention.bytes": "10", "local.retention.bytes": "11"}, "local.retention.bytes"),
        ({"remote.log.copy.disable": "true", "local.retention.ms": "5"}, "local.retention.ms"),
    ],
)
def test_tiered_topics_where_tiering_is_on(settings: dict[str, str], setting: str) -> None:
    broker = BrokerConfig.from_map({"remote.log.storage.system.enable": "true"})
    validate_topic_configs({"remote.storage.enable": "true"}, broker)
    with pytest.raises(ConfigError) as caught:
        validate_topic_configs({"remote.storage.enable": "true", **settings}, broker)
    assert caught.value.setting == setting


def test_defaults_are_kafkas() -> None:
    config = LogConfig.defaults()
    assert config == LogConfig.resolve({}, BROKER)
    assert config.segment_bytes == 1024**3
    assert config.retention_ms == 7 * 24 * 3_600_000
    assert config.local_retention_ms == config.retention_ms
    assert config.cleanup_policy == frozenset({"delete"})
    assert config.is_delete and not config.is_compact
    assert config.compression_type == "producer"
    assert config.message_timestamp_type == "CreateTime"


def test_topic_then_broker_then_default() -> None:
    broker = BrokerConfig.from_map(
        {
            "log.segment.bytes": "2097152",
            "log.retention.minutes": "1",
            "log.roll.hours": "1",
            "log.flush.scheduler.interval.ms": "7",
            "message.max.bytes": "5",
            "log.cleanup.policy": "compact, delete",
            "unclean.leader.election.enable": "true",
        }
    )
    config = LogConfig.resolve({"message.max.bytes": "ignored", "max.message.bytes": " 9 "}, broker)
    assert config.max_message_bytes == 9
    assert (config.segment_bytes, config.retention_ms, config.segment_ms) == (2097152, 60_000, 3_600_000)
    assert config.flush_ms == 7
    assert config.is_compact and config.is_delete
    assert config.unclean_leader_election_enable is True
    assert config.index_interval_bytes == 4096


def test_small_segments_for_tests() -> None:
    assert LogConfig.resolve({"internal.segment.bytes": "100"}, BROKER).segment_bytes == 100


def test_it_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        LogConfig.defaults().segment_bytes = 1  # type: ignore[misc]
