"""What DescribeConfigs answers: values, sources, synonyms, secrets."""

from __future__ import annotations

from config.broker import BrokerConfig
from config.broker_settings import BROKER_SETTINGS
from config.definitions import Kind
from config.describe import (
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    describe_broker,
    describe_cluster_default,
    describe_topic,
)
from config.topic_settings import TOPIC_SETTINGS


def by_name(entries: list[ConfigEntry]) -> dict[str, ConfigEntry]:
    found = {entry.name: entry for entry in entries}
    assert len(found) == len(entries)
    return found


def test_a_topic_lists_every_setting() -> None:
    entries = by_name(describe_topic({}, BrokerConfig.from_map({})))
    assert entries.keys() == TOPIC_SETTINGS.keys() - {"internal.segment.bytes"}
    assert all(entry.source is ConfigSource.DEFAULT and not entry.read_only for entry in entries.values())
    assert entries["max.message.bytes"].synonyms == (
        ConfigSynonym("message.max.bytes", "1048588", ConfigSource.DEFAULT),
    )
    assert entries["cleanup.policy"].kind is Kind.LIST


def test_sources_of_a_topic_setting_strongest_first() -> None:
    broker = BrokerConfig.from_map({"log.retention.hours": "48", "log.retention.minutes": "600"})
    entry = by_name(
        describe_topic(
            {"retention.ms": " 1000"},
            broker,
            dynamic_broker={"log.retention.ms": "3"},
            dynamic_default={"log.retention.ms": "4"},
        )
    )["retention.ms"]
    assert (entry.value, entry.source) == ("1000", ConfigSource.TOPIC)
    assert entry.synonyms == (
        ConfigSynonym("retention.ms", "1000", ConfigSource.TOPIC),
        ConfigSynonym("log.retention.ms", "3", ConfigSource.DYNAMIC_BROKER),
        ConfigSynonym("log.retention.ms", "4", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ConfigSynonym("log.retention.minutes", "600", ConfigSource.STATIC_BROKER),
        ConfigSynonym("log.retention.hours", "48", ConfigSource.STATIC_BROKER),
        ConfigSynonym("log.retention.hours", "168", ConfigSource.DEFAULT),
    )


def test_a_value_from_another_unit_has_no_synonyms() -> None:
    """As in Kafka: only log.roll.ms is looked for, and it is not set."""
    entry = by_name(describe_topic({}, BrokerConfig.from_map({"log.roll.hours": "24"})))["segment.ms"]
    assert (entry.value, entry.source, entry.synonyms) == ("86400000", ConfigSource.DEFAULT, ())


def test_an_internal_setting_appears_when_it_is_set() -> None:
    entries = by_name(describe_topic({"internal.segment.bytes": "7"}, BrokerConfig.from_map({})))
    assert entries["internal.segment.bytes"].value == "7"


def test_synonyms_show_text_and_the_value_its_meaning() -> None:
    entries = by_name(describe_broker(BrokerConfig.from_map({"log.cleanup.policy": "delete, compact"})))
    entry = entries["log.cleanup.policy"]
    assert (entry.value, entry.source, entry.read_only) == ("delete,compact", ConfigSource.STATIC_BROKER, False)
    assert entry.synonyms[0].value == "delete, compact"


def test_a_broker_lists_every_setting_that_is_not_internal() -> None:
    entries = by_name(describe_broker(BrokerConfig.from_map({})))
    assert entries.keys() == {name for name, setting in BROKER_SETTINGS.items() if not setting.internal}
    assert entries["num.partitions"].read_only
    assert not entries["num.io.threads"].read_only
    assert entries["broker.id"].source is ConfigSource.STATIC_BROKER, "it follows node.id"
    assert entries["log.retention.ms"] == ConfigEntry(
        "log.retention.ms",
        None,
        False,
        ConfigSource.DEFAULT,
        False,
        (),
        Kind.LONG,
        BROKER_SETTINGS["log.retention.ms"].doc,
    )


def test_secrets_and_unknown_names_have_no_value() -> None:
    broker = BrokerConfig.from_map(
        {
            "ssl.keystore.password": "hunter2",
            "listener.name.plaintext.ssl.keystore.password": "hunter2",
            "my.own": "hunter2",
        }
    )
    entries = describe_broker(broker)
    assert "hunter2" not in repr(entries)
    named = by_name(entries)
    assert named["ssl.keystore.password"].sensitive
    prefixed = named["listener.name.plaintext.ssl.keystore.password"]
    assert (prefixed.kind, prefixed.sensitive, prefixed.read_only) == (Kind.PASSWORD, True, True)
    assert [synonym.name for synonym in prefixed.synonyms] == [prefixed.name, "ssl.keystore.password"]
    unknown = named["my.own"]
    assert (unknown.kind, unknown.sensitive, unknown.doc) == (Kind.UNKNOWN, True, None)


def test_dynamic_settings_of_a_broker() -> None:
    broker = BrokerConfig.from_map({"log.retention.hours": "48"})
    dynamic = broker.with_dynamic(
        dynamic_broker={"leader.replication.throttled.rate": "123"},
        dynamic_default={"log.retention.ms": "9"},
    )
    assert describe_broker(dynamic) == describe_broker(
        broker, {"leader.replication.throttled.rate": "123"}, {"log.retention.ms": "9"}
    )
    entries = by_name(describe_broker(dynamic))
    rate = entries["leader.replication.throttled.rate"]
    assert (rate.value, rate.read_only, rate.kind) == ("123", False, Kind.LONG)
    assert entries["log.retention.hours"].value == "168", "a dynamic log.retention.ms displaces it"
    assert entries["log.retention.hours"].source is ConfigSource.STATIC_BROKER


def test_the_defaults_of_all_brokers() -> None:
    (entry,) = describe_cluster_default({"num.io.threads": "9"})
    assert entry.synonyms == (ConfigSynonym("num.io.threads", "9", ConfigSource.DYNAMIC_DEFAULT_BROKER),)
    assert (entry.value, entry.kind, entry.read_only) == ("9", Kind.INT, False)
