"""A node's configuration: files, overrides, precedence, listeners, roles, errors and warnings."""

from __future__ import annotations

from pathlib import Path

import pytest

from config.broker import BrokerConfig, HostPort, Listener, Voter
from config.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
}


def combined(**changes: str | None) -> BrokerConfig:
    """A combined node with changes; underscores stand for dots, None removes a setting."""
    settings = dict(COMBINED)
    for attribute, value in changes.items():
        name = attribute.replace("_", ".")
        if value is None:
            del settings[name]
        else:
            settings[name] = value
    return BrokerConfig(settings)


def refused(**changes: str | None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        combined(**changes)
    return caught.value


def written(directory: Path, *lines: str) -> str:
    path = directory / "server.properties"
    text = "\n".join([f"{name}={value}" for name, value in COMBINED.items()] + list(lines))
    path.write_text(text + "\n")
    return str(path)


def test_the_default_file_is_a_working_combined_node() -> None:
    config = BrokerConfig.load(str(ROOT / "config" / "server.properties"))
    assert config.warnings == ()
    assert config.process_roles == ("broker", "controller")
    assert config.listeners == (
        Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),
        Listener("CONTROLLER", "", 9093, "PLAINTEXT"),
    )
    assert config.advertised_listeners == ()
    assert config.controller_quorum_bootstrap_servers == (HostPort("localhost", 9093),)
    assert config.log_dirs == ("data",)
    assert config.metadata_log_dir == "data"


def test_values_are_typed_and_cannot_be_changed() -> None:
    config = combined(num_partitions=" 3 ", broker_rack="a b", log_cleaner_min_cleanable_ratio="0.7")
    assert (config.num_partitions, config.broker_rack, config.log_cleaner_min_cleanable_ratio) == (3, "a b", 0.7)
    assert config.auto_create_topics_enable is True
    with pytest.raises(AttributeError):
        config.num_partitions = 4  # type: ignore[misc]


def test_a_map_without_roles_is_a_single_node() -> None:
    config = BrokerConfig.from_map({"log.dirs": "/a,/b", "node.id": "7"})
    assert (config.node_id, config.broker_id, config.log_dirs) == (7, 7, ("/a", "/b"))
    assert [listener.port for listener in config.listeners] == [0, 0]


@pytest.mark.parametrize(
    ("settings", "retention_ms"),
    [
        ({}, 168 * 3_600_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "5"}, 300_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "5", "log.retention.ms": "9"}, 9),
        ({"log.retention.minutes": "-1"}, -1),
        ({"log.retention.hours": "-7"}, -1),
        ({"log.retention.ms": "-1", "log.retention.hours": "2"}, -1),
    ],
)
def test_retention_precedence(settings: dict[str, str], retention_ms: int) -> None:
    assert BrokerConfig.from_map(settings).log_retention_ms == retention_ms


def test_roll_and_flush_precedence() -> None:
    config = BrokerConfig.from_map({"log.roll.hours": "2", "log.roll.jitter.hours": "1"})
    assert (config.log_roll_ms, config.log_roll_jitter_ms) == (7_200_000, 3_600_000)
    config = BrokerConfig.from_map(
        {"log.roll.hours": "2", "log.roll.ms": "5", "log.roll.jitter.hours": "1", "log.roll.jitter.ms": "3"}
    )
    assert (config.log_roll_ms, config.log_roll_jitter_ms) == (5, 3)
    assert BrokerConfig.from_map({"log.flush.scheduler.interval.ms": "7"}).log_flush_interval_ms == 7
    config = BrokerConfig.from_map({"log.flush.scheduler.interval.ms": "7", "log.flush.interval.ms": "5"})
    assert config.log_flush_interval_ms == 5


def test_log_directories() -> None:
    assert combined().log_dirs == ("/tmp/kafka-logs",)
    assert combined(log_dir="/x").log_dirs == ("/x",)
    assert combined(log_dir="/x", log_dirs="/y, /z,/y").log_dirs == ("/y", "/z")
    assert combined(log_dirs="/y,/z").metadata_log_dir == "/y"
    assert combined(log_dirs="/y,/z", metadata_log_dir="/m").metadata_log_dir == "/m"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PLAINTEXT://:9092", ("PLAINTEXT", "", 9092)),
        ("plaintext://localhost:9092", ("PLAINTEXT", "localhost", 9092)),
        ("PLAINTEXT://[::1]:9092", ("PLAINTEXT", "::1", 9092)),
        ("PLAINTEXT://[::]:9092", ("PLAINTEXT", "::", 9092)),
        ("PLAINTEXT://0.0.0.0:9092", ("PLAINTEXT", "0.0.0.0", 9092)),
        ("PLAINTEXT://a_b.example-1.org:0", ("PLAINTEXT", "a_b.example-1.org", 0)),
    ],
)
def test_listener_addresses(text: str, expected: tuple[str, str, int]) -> None:
    listener = combined(listeners=f"{text},CONTROLLER://:9093").listeners[0]
    assert (listener.name, listener.host, listener.port) == expected
    assert str(listener) == text.replace("plaintext", "PLAINTEXT")


@pytest.mark.parametrize(
    ("listeners", "message"),
    [
        ("PLAINTEXT://localhost,CONTROLLER://:9093", "PLAINTEXT://localhost is not a listener"),
        ("PLAINTEXT//:9092", "PLAINTEXT//:9092 is not a listener"),
        ("://:9092", "has no listener name"),
        ("PLAINTEXT://:99999,CONTROLLER://:9093", "a port is between 0 and 65535"),
        ("PLAINTEXT://:9092,PLAINTEXT://:9094,CONTROLLER://:9093", "different name"),
        ("PLAINTEXT://:9092,CONTROLLER://:9092", "different port"),
        ("PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.2:9092", "different port"),
        ("PLAINTEXT://:9092,FOO://:9094,CONTROLLER://:9093", "No security protocol defined for listener FOO"),
        ("PLAINTEXT://:9092,SSL://:9094,CONTROLLER://:9093", "No security protocol defined for listener CON"),
        ("PLAINTEXT://:9092", "'listeners' has no listener of that name"),
        ("CONTROLLER://:9093", "leaves no listener for clients"),
        ("", "must not be empty"),
    ],
)
def test_listeners_that_are_refused(listeners: str, message: str) -> None:
    error = refused(listeners=listeners)
    assert message in error.message
    assert error.hint


def test_ipv4_and_ipv6_may_share_a_port() -> None:
    config = combined(
        listeners="PLAINTEXT://127.0.0.1:9092,SIX://[::1]:9092,CONTROLLER://:9093",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,SIX:PLAINTEXT,CONTROLLER:PLAINTEXT",
    )
    assert [listener.name for listener in config.listeners] == ["PLAINTEXT", "SIX", "CONTROLLER"]


def test_free_ports_may_repeat() -> None:
    assert len(combined(listeners="PLAINTEXT://:0,CONTROLLER://:0").listeners) == 2


def test_named_listeners() -> None:
    names = "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
    config = combined(
        listeners="INSIDE://:9092,OUTSIDE://:9094,CONTROLLER://:9093",
        listener_security_protocol_map=names,
        inter_broker_listener_name="inside",
        advertised_listeners="INSIDE://a:1,OUTSIDE://b:2",
    )
    assert config.inter_broker_listener_name == "INSIDE"
    assert [str(listener) for listener in config.advertised_listeners] == ["INSIDE://a:1", "OUTSIDE://b:2"]
    assert config.listener_security_protocol_map["OUTSIDE"] == "PLAINTEXT"


@pytest.mark.parametrize(
    ("changes", "setting", "message"),
    [
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "advertised.listeners", "meta-address 0.0.0.0"),
        ({"advertised.listeners": "PLAINTEXT://[::]:9092"}, "advertised.listeners", "meta-address ::"),
        ({"advertised.listeners": "FOO://h:9092"}, "advertised.listeners", "No security protocol"),
        ({"advertised.listeners": "CONTROLLER://h:9093"}, "advertised.listeners", "no listener for clients"),
        ({"advertised.listeners": "SSL://h:9093"}, "advertised.listeners", "not in listeners"),
        ({"inter.broker.listener.name": "FOO"}, "inter.broker.listener.name", "FOO"),
        ({"inter.broker.listener.name": "CONTROLLER"}, "inter.broker.listener.name", "CONTROLLER"),
        ({"security.inter.broker.protocol": "SSL"}, "inter.broker.listener.name", "SSL"),
        ({"listener.security.protocol.map": "PLAINTEXT"}, "listener.security.protocol.map", "Cannot read"),
        ({"listener.security.protocol.map": "A:FOO"}, "listener.security.protocol.map", "`FOO`"),
        ({"broker.id": "3"}, "broker.id", "`node.id`"),
        ({"node.id": "-1"}, "node.id", "at least 0"),
        ({"process.roles": "foo"}, "process.roles", "one of: broker, controller"),
        ({"process.roles": "broker"}, "controller.listener.names", "CONTROLLER"),
        ({"process.roles": "controller"}, "listeners", "PLAINTEXT"),
        ({"controller.quorum.voters": "2@localhost:9093"}, "controller.quorum.voters", "voters [2]"),
        ({"controller.listener.names": "CONTROLLER,C2"}, "controller.listener.names", "C2"),
        ({"log.retention.ms": "0"}, "log.retention.ms", "at least 1"),
        ({"log.retention.hours": "0"}, "log.retention.hours", "at least 1"),
        ({"log.roll.ms": "0"}, "log.roll.ms", "at least 1"),
        ({"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms", "at least 0"),
        ({"queued.max.request.bytes": "5"}, "queued.max.request.bytes", "socket.request.max.bytes"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip", "nobody could connect"),
        ({"max.connections.per.ip.overrides": "h:x"}, "max.connections.per.ip.overrides", "Cannot read"),
        ({"log.cleaner.dedupe.buffer.size": "100"}, "log.cleaner.dedupe.buffer.size", "cleaner threads"),
        ({"replica.fetch.wait.max.ms": "50000"}, "replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
        ({"offsets.topic.compression.codec": "9"}, "offsets.topic.compression.codec", "type id: 9"),
        ({"cordoned.log.dirs": "/q"}, "cordoned.log.dirs", "/q"),
        ({"group.consumer.session.timeout.ms": "1"}, "group.consumer.session.timeout.ms", "min.session"),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "group.coordinator.rebalance.protocols", "cla"),
        ({"log.cleaner.max.compaction.lag.ms": "5", "log.cleaner.min.compaction.lag.ms": "9"},
         "log.cleaner.min.compaction.lag.ms", "must not be greater"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_together(changes: dict[str, str], setting: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig({**COMBINED, **changes})
    assert caught.value.setting == setting
    assert message in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("name", ["process.roles", "node.id", "controller.listener.names"])
def test_required_settings(name: str) -> None:
    error = refused(**{name.replace(".", "_"): None})
    assert error.message == f'Missing required configuration "{name}" which has no default value'
    assert error.hint is not None and f"{name}=" in error.hint


def test_a_quorum_is_required() -> None:
    assert "controller.quorum.bootstrap.servers" in refused(controller_quorum_bootstrap_servers=None).message
    config = combined(controller_quorum_bootstrap_servers=None, controller_quorum_voters="1@a:9093,2@[::1]:9094")
    assert config.controller_quorum_voters == (Voter(1, "a", 9093), Voter(2, "::1", 9094))


def test_separate_roles() -> None:
    broker = combined(process_roles="broker", listeners="PLAINTEXT://:9092")
    assert broker.process_roles == ("broker",)
    controller = combined(process_roles="controller", listeners="CONTROLLER://:9093")
    assert [listener.name for listener in controller.listeners] == ["CONTROLLER"]


def test_a_protocol_that_is_not_served_is_refused() -> None:
    """A TLS listener must not quietly become a plaintext one."""
    error = refused(
        listeners="PLAINTEXT://:9092,TLS://:9094,CONTROLLER://:9093",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,TLS:SSL,CONTROLLER:PLAINTEXT",
    )
    assert "TLS uses SSL" in error.message


def test_connection_overrides() -> None:
    config = combined(max_connections_per_ip_overrides="host:5, [::1]:6", max_connections_per_ip="0")
    assert config.max_connections_per_ip_overrides == {"host": 5, "[::1]": 6}


def test_an_error_names_setting_value_file_line_and_what_is_right(tmp_path: Path) -> None:
    path = written(tmp_path, "# a comment", "num.partitions=many")
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(path)
    assert str(caught.value) == (
        f"{path}, line 7: Invalid value many for configuration num.partitions: Not a number of type INT."
        " Expected a whole number of 32 bits, at least 1."
    )


def test_a_cross_check_names_file_and_line(tmp_path: Path) -> None:
    path = written(tmp_path, "log.retention.hours=0")
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(path)
    assert (caught.value.file, caught.value.line, caught.value.value) == (path, 6, "0")


def test_overrides_win_and_are_named_in_errors(tmp_path: Path) -> None:
    path = written(tmp_path, "num.partitions=2")
    assert BrokerConfig.load(path, ["num.partitions=5", "broker.rack=a=b"]).num_partitions == 5
    assert BrokerConfig.load(path, ["broker.rack=a=b"]).broker_rack == "a=b"
    with pytest.raises(ConfigError, match=r"^--override: Invalid value x for configuration num.partitions"):
        BrokerConfig.load(path, ["num.partitions=x"])
    with pytest.raises(ConfigError, match="Write --override name=value"):
        BrokerConfig.load(path, ["num.partitions"])


def test_a_missing_file_and_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Cannot read the configuration file"):
        BrokerConfig.load(str(tmp_path / "absent.properties"))
    empty = tmp_path / "empty.properties"
    empty.write_text("")
    with pytest.raises(ConfigError, match=r"empty.properties: Missing required configuration"):
        BrokerConfig.load(str(empty))


def test_passwords_do_not_appear_in_errors_or_representations() -> None:
    config = combined(ssl_keystore_password="hunter2")
    assert "hunter2" not in repr(config)
    assert config.ssl_keystore_password == "hunter2"


@pytest.mark.parametrize(
    ("line", "warning"),
    [
        ("num.partition=3", "unknown setting num.partition, did you mean num.partitions?"),
        ("completely.different=3", "unknown setting completely.different"),
        ("num.io.threads=9", "num.io.threads is a Kafka setting that Barnabas does not act on yet"),
        ("super.users=User:a", "super.users is a Kafka setting that Barnabas does not act on yet"),
        ("zookeeper.connect=z:2181", "zookeeper.connect was removed from Kafka and has no effect"),
        ("retention.ms=5", "retention.ms is a setting of topics and has no effect here;"
                           " its broker setting is log.retention.ms"),
        ("num.partitions=3", None),
        ("node.id=1", "node.id is set again (first on line 2); this counts"),
    ],
)  # fmt: skip
def test_warnings(tmp_path: Path, line: str, warning: str | None) -> None:
    path = written(tmp_path, line)
    expected = () if warning is None else (f"{path}, line 6: {warning}",)
    assert BrokerConfig.load(path).warnings == expected


def test_dynamic_settings_go_before_static_ones() -> None:
    static = BrokerConfig.from_map({"log.retention.hours": "2", "num.io.threads": "3"})
    config = static.with_dynamic(
        dynamic_broker={"num.io.threads": "5"},
        dynamic_default={"log.retention.ms": "9", "num.io.threads": "4"},
    )
    assert (config.log_retention_ms, config.num_io_threads) == (9, 5)
    assert config.values["log.retention.hours"] == 168, "the other units fall back to their defaults"
    assert config.raw == static.raw
    assert static.log_retention_ms == 7_200_000
