"""The registry, the validation and DescribeConfigs, held against Apache Kafka's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway, get_field
from py4j.protocol import Py4JJavaError
from support.anchor import AnchorKafka

from config.broker import BrokerConfig
from config.broker_settings import BROKER_SETTINGS, DYNAMIC_ONLY
from config.checks import ListOf
from config.definitions import READ_ONLY, Required, Setting, double_text, value_text
from config.describe import ConfigEntry, describe_broker, describe_cluster_default, describe_topic
from config.errors import ConfigError
from config.topic import topic_values, validate_topic_configs
from config.topic_settings import SERVER_DEFAULTS, TOPIC_SETTINGS

pytestmark = pytest.mark.stock


@pytest.fixture(scope="module")
def kafka(jvm: JavaGateway) -> Any:
    return jvm.jvm.org.apache.kafka


def test_the_topic_registry_is_kafkas(kafka: Any) -> None:
    keys = kafka.storage.internals.log.LogConfig.configDefCopy().configKeys()
    assert_same_registry(kafka, keys, TOPIC_SETTINGS)


def test_the_broker_registry_is_kafkas(kafka: Any) -> None:
    keys = kafka.server.config.AbstractKafkaConfig.CONFIG_DEF.configKeys()
    assert_same_registry(kafka, keys, BROKER_SETTINGS)


def test_update_modes_are_kafkas(kafka: Any) -> None:
    modes = dict(kafka.server.config.DynamicBrokerConfig.dynamicConfigUpdateModes())
    ours = {name: setting.update_mode for name, setting in BROKER_SETTINGS.items() if setting.update_mode != READ_ONLY}
    assert {**ours, **dict.fromkeys(DYNAMIC_ONLY, "cluster-wide")} == modes


def test_server_defaults_are_kafkas(kafka: Any) -> None:
    synonyms = kafka.server.config.ServerTopicConfigSynonyms.TOPIC_CONFIG_SYNONYMS
    assert dict(synonyms) == dict(SERVER_DEFAULTS)


def assert_same_registry(kafka: Any, keys: Any, settings: Any) -> None:
    names = {str(name) for name in keys.keySet()}
    assert names == settings.keys()
    convert = kafka.common.config.ConfigDef.convertToString
    for name in sorted(names):
        key, setting = keys.get(name), settings[name]
        kind, validator = get_field(key, "type"), get_field(key, "validator")
        default = convert(get_field(key, "defaultValue"), kind) if key.hasDefault() else "required"
        theirs = (
            kind.toString(),
            get_field(key, "importance").toString(),
            get_field(key, "internalConfig"),
            default,
            None if validator is None else validator.toString(),
        )
        assert ours(setting, theirs[3]) == theirs, name


def ours(setting: Setting, their_default: str | None) -> tuple[str, str, bool, str | None, str | None]:
    if isinstance(setting.default, Required):
        default: str | None = "required"
    else:
        default = value_text(setting.default)
    if setting.name == "listener.security.protocol.map" and default is not None and their_default is not None:
        # A map printed in the order of a Java hash map: only its entries are a fact.
        assert sorted(default.split(",")) == sorted(their_default.split(","))
        default = their_default
    check = None if setting.check is None else str(setting.check)
    return setting.kind.name, setting.importance.name, setting.internal, default, check


def test_lists_may_be_empty_where_kafkas_may(kafka: Any) -> None:
    keys = kafka.server.config.AbstractKafkaConfig.CONFIG_DEF.configKeys()
    for name, setting in BROKER_SETTINGS.items():
        if isinstance(setting.check, ListOf):
            assert accepts(setting, "") == java_accepts(keys.get(name), []), name
            assert accepts(setting, "a,,a") == java_accepts(keys.get(name), ["a", "", "a"]), name


def accepts(setting: Setting, text: str) -> bool:
    try:
        setting.parse(text)
    except ConfigError:
        return False
    return True


def java_accepts(key: Any, value: list[str]) -> bool:
    try:
        get_field(key, "validator").ensureValid(get_field(key, "name"), value)
    except Py4JJavaError:
        return False
    return True


def candidates() -> Iterator[dict[str, str]]:
    texts = ["", " ", "0", "1", "-1", "-2", "7", " 12 ", "+3", "1.5", "0.5", "99999999999", "abc", "TRUE"]
    texts += ["false", "1048576", "9223372036854775807", "9223372036854775808", "compact", "delete, compact"]
    texts += ["compact,compact", "a,,b", ",", "gzip", "GZIP", "CreateTime", "*", "0:1", "0:1,2:3", "x:y", "1e3"]
    for name in TOPIC_SETTINGS:
        for text in texts:
            yield {name: text}
    yield {"nope": "1"}
    yield {"nope": "1", "retention.ms": "x"}
    yield {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}
    yield {"remote.storage.enable": "true", "cleanup.policy": "compact"}


def test_topic_settings_are_judged_as_kafka_does(jvm: JavaGateway, kafka: Any) -> None:
    """Verdict and sentence, for every topic setting with a range of values."""
    log_config = kafka.storage.internals.log.LogConfig
    broker = BrokerConfig.from_map({})
    keys = log_config.configDefCopy().configKeys()
    defaults = jvm.jvm.java.util.HashMap()
    for name in SERVER_DEFAULTS:
        defaults.put(name, get_field(keys.get(name), "defaultValue"))
    for settings in candidates():
        try:
            validate_topic_configs(settings, broker)
            verdict = None
        except ConfigError as error:
            verdict = str(error)
        try:
            log_config.validate({}, settings, defaults, False)
            expected = None
        except Py4JJavaError as error:
            expected = error.java_exception.getMessage()
        assert verdict == expected, settings


def test_topic_values_are_read_as_kafka_does(kafka: Any) -> None:
    """Duplicates in lists, blanks, doubles: what a value means, not only whether it is accepted."""
    broker = BrokerConfig.from_map({})
    convert = kafka.common.config.ConfigDef.convertToString
    definition = kafka.storage.internals.log.LogConfig.configDefCopy()
    for settings in (
        {"cleanup.policy": "compact, compact"},
        {"cleanup.policy": " delete ,compact "},
        {"min.cleanable.dirty.ratio": "0.0001"},
        {"min.cleanable.dirty.ratio": "1e-7f"},
        {"retention.ms": " +7 "},
        {"preallocate": " TRUE"},
        {"leader.replication.throttled.replicas": "0:1, 0:1"},
    ):
        parsed = definition.parse(settings)
        for name in settings:
            theirs = convert(parsed.get(name), get_field(definition.configKeys().get(name), "type"))
            assert value_text(topic_values(settings, broker)[name]) == theirs, settings


def test_doubles_print_as_in_java(jvm: JavaGateway) -> None:
    import random

    chance = random.Random(11)
    to_text = jvm.jvm.java.lang.Double.toString
    for _ in range(200):
        number = round(chance.uniform(-10, 10), 3) * 10.0 ** chance.randrange(-12, 12)
        text = to_text(number)
        # JDKs before 19 sometimes print one digit more than needed; the value is what must agree.
        assert float(text) == float(double_text(number))
        assert ("E" in text) == ("E" in double_text(number)), text


BROKER_CASES: list[dict[str, str]] = [
    {},
    {"log.retention.minutes": "5", "log.retention.hours": "2"},
    {"log.retention.hours": "-7"},
    {"log.retention.hours": "0"},
    {"log.retention.ms": "0"},
    {"log.roll.hours": "2", "log.roll.ms": "5"},
    {"log.roll.ms": "0"},
    {"log.roll.jitter.ms": "-1"},
    {"log.flush.scheduler.interval.ms": "7"},
    {"log.dirs": "/a, /b,/a"},
    {"log.dirs": "/a,,/b"},
    {"log.dir": "/x"},
    {"node.id": "-1"},
    {"broker.id": "3"},
    {"process.roles": "foo"},
    {"process.roles": "broker"},
    {"process.roles": "controller"},
    {"process.roles": "broker", "listeners": "PLAINTEXT://:9092"},
    {"process.roles": "controller", "listeners": "CONTROLLER://:9093"},
    {"listeners": "PLAINTEXT://:9092"},
    {"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9094,CONTROLLER://:9093"},
    {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9092"},
    {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://[::1]:9092"},
    {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.2:9092"},
    {"listeners": "PLAINTEXT://a:9092,CONTROLLER://b:9092"},
    {"listeners": "PLAINTEXT://:9092,FOO://:9094,CONTROLLER://:9093"},
    {"listeners": "PLAINTEXT://localhost,CONTROLLER://:9093"},
    {"listeners": "plaintext://[::1]:9092,CONTROLLER://:0"},
    {"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"},
    {"advertised.listeners": "PLAINTEXT://host:9092"},
    {"advertised.listeners": "PLAINTEXT://host:9092,CONTROLLER://c:9093"},
    {"advertised.listeners": "FOO://host:9092"},
    {"advertised.listeners": "CONTROLLER://c:9093"},
    {"advertised.listeners": ""},
    {"controller.listener.names": "FOO"},
    {"controller.listener.names": "CONTROLLER,C2"},
    {"controller.quorum.bootstrap.servers": "localhost"},
    {"controller.quorum.voters": "1@localhost:9093"},
    {"controller.quorum.voters": "2@localhost:9093"},
    {"controller.quorum.voters": "x@localhost:9093"},
    {"controller.quorum.voters": "1@0.0.0.0:9093"},
    {"inter.broker.listener.name": "FOO"},
    {"inter.broker.listener.name": "PLAINTEXT"},
    {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
    {"inter.broker.listener.name": "CONTROLLER"},
    {"security.inter.broker.protocol": "SSL"},
    {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
    {"listener.security.protocol.map": "PLAINTEXT:FOO,CONTROLLER:PLAINTEXT"},
    {"queued.max.request.bytes": "5"},
    {"queued.max.request.bytes": "0"},
    {"max.connections.per.ip": "0"},
    {"max.connections.per.ip.overrides": "host:5,b:6"},
    {"max.connections.per.ip.overrides": "host:x"},
    {"replica.fetch.wait.max.ms": "50000"},
    {"log.cleaner.dedupe.buffer.size": "100"},
    {"offsets.topic.compression.codec": "9"},
    {"cordoned.log.dirs": "/q"},
    {"cordoned.log.dirs": "*"},
    {"group.consumer.session.timeout.ms": "1"},
    {"group.share.heartbeat.interval.ms": "99999"},
    {"group.streams.num.standby.replicas": "5"},
    {"group.coordinator.rebalance.protocols": "consumer"},
    {"num.partitions": "0"},
    {"socket.send.buffer.bytes": "abc"},
    {"transaction.state.log.replication.factor": "99999"},
]


def test_nodes_are_judged_as_kafka_does(jvm: JavaGateway) -> None:
    """The same configurations are accepted and refused, and the accepted ones mean the same."""
    base = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "localhost:9093",
    }
    for case in BROKER_CASES:
        settings = {**base, **case}
        try:
            config = BrokerConfig(settings)
            mine: object = (
                config.log_retention_ms,
                config.log_roll_ms,
                config.log_roll_jitter_ms,
                config.log_flush_interval_ms,
                list(config.log_dirs),
                config.inter_broker_listener_name,
                [(listener.name, listener.host, listener.port) for listener in config.listeners],
            )
        except ConfigError:
            mine = "refused"
        assert mine == java_node(jvm, settings), case


def java_node(jvm: JavaGateway, settings: dict[str, str]) -> object:
    try:
        config = jvm.jvm.kafka.server.KafkaConfig(settings)
    except Py4JJavaError:
        return "refused"
    listeners = config.listeners()
    ends = [listeners.apply(position) for position in range(listeners.size())]
    return (
        config.logRetentionTimeMillis(),
        config.logRollTimeMillis(),
        config.logRollTimeJitterMillis(),
        config.logFlushIntervalMs(),
        list(config.logDirs()),
        config.interBrokerListenerName().value(),
        [(end.listener(), end.host() or "", end.port()) for end in ends],
    )


@pytest.mark.slow
def test_a_running_kafka_describes_itself_alike(jvm: JavaGateway, anchor: AnchorKafka) -> None:
    """Every entry of DescribeConfigs for a topic, a broker and all brokers, documentation aside."""
    java = jvm.jvm
    admin_package = java.org.apache.kafka.clients.admin
    admin = admin_package.Admin.create({"bootstrap.servers": f"127.0.0.1:{anchor.port}"})
    overrides = {"retention.ms": "1000", "cleanup.policy": "compact, delete", "internal.segment.bytes": "1048577"}
    try:
        one = java.java.util.Optional.of(1)
        none = java.java.util.Optional.empty()
        topic = admin_package.NewTopic("described", one, none).configs(overrides)
        admin.createTopics([topic]).all().get()
        default = described(jvm, admin, "BROKER", "")
        dynamic_default = {name: entry[0] for name, entry in default.items()}
        broker = BrokerConfig.load(str(anchor.properties_path))
        node = str(broker.node_id)
        assert shown(describe_cluster_default(dynamic_default)) == default
        assert shown(describe_topic(overrides, broker, {}, dynamic_default)) == described(
            jvm, admin, "TOPIC", "described"
        )
        assert shown(describe_broker(broker, {}, dynamic_default)) == described(jvm, admin, "BROKER", node)
    finally:
        admin.deleteTopics(["described"])
        admin.close()


SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": 1,
    "DYNAMIC_BROKER_CONFIG": 2,
    "DYNAMIC_DEFAULT_BROKER_CONFIG": 3,
    "STATIC_BROKER_CONFIG": 4,
    "DEFAULT_CONFIG": 5,
}


def shown(entries: list[ConfigEntry]) -> dict[str, Any]:
    return {
        entry.name: (
            entry.value,
            entry.read_only,
            entry.sensitive,
            int(entry.source),
            entry.kind.name,
            [(synonym.name, synonym.value, int(synonym.source)) for synonym in entry.synonyms],
        )
        for entry in entries
    }


def described(jvm: JavaGateway, admin: Any, kind: str, name: str) -> dict[str, Any]:
    config = jvm.jvm.org.apache.kafka.common.config.ConfigResource
    kinds = getattr(jvm.jvm.org.apache.kafka.common.config, "ConfigResource$Type")
    resource = config(kinds.valueOf(kind), name)
    options = jvm.jvm.org.apache.kafka.clients.admin.DescribeConfigsOptions().includeSynonyms(True)
    answer = admin.describeConfigs([resource], options).all().get().get(resource)
    return {
        str(entry.name()): (
            entry.value(),
            entry.isReadOnly(),
            entry.isSensitive(),
            SOURCES[entry.source().toString()],
            entry.type().toString(),
            [
                (synonym.name(), synonym.value(), SOURCES[synonym.source().toString()])
                for synonym in entry.synonyms().toArray()
            ],
        )
        for entry in answer.entries().toArray()
    }
