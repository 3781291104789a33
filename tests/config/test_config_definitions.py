"""Values are parsed and refused as Kafka's ConfigDef does it."""

from __future__ import annotations

import struct
from typing import get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.broker_attributes import BrokerAttributes
from config.broker_settings import BROKER_SETTINGS, DYNAMIC_ONLY, base_name, synonyms_of
from config.definitions import Kind, double_text, parse_value, value_text
from config.effective import EFFECTIVE
from config.errors import ConfigError
from config.topic_settings import SERVER_DEFAULTS, TOPIC_SETTINGS


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.INT, " 5 ", 5),
        (Kind.INT, "+5", 5),
        (Kind.INT, "-2147483648", -(2**31)),
        (Kind.SHORT, "32767", 32767),
        (Kind.LONG, "9223372036854775807", 2**63 - 1),
        (Kind.BOOLEAN, " TRUE ", True),
        (Kind.BOOLEAN, "False", False),
        (Kind.DOUBLE, "0.5f", 0.5),
        (Kind.DOUBLE, "5e-1", 0.5),
        (Kind.DOUBLE, "0x1p-1", 0.5),
        (Kind.DOUBLE, "-Infinity", float("-inf")),
        (Kind.LIST, " a , b,c ", ("a", "b", "c")),
        (Kind.LIST, "  ", ()),
        (Kind.LIST, "a,,b", ("a", "", "b")),
        (Kind.STRING, " x y ", "x y"),
        (Kind.PASSWORD, " secret ", " secret "),
    ],
)
def test_parsing(kind: Kind, text: str, value: object) -> None:
    assert parse_value(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "problem"),
    [
        (Kind.INT, "2147483648", "Not a number of type INT"),
        (Kind.INT, "1_000", "Not a number of type INT"),
        (Kind.INT, "1.5", "Not a number of type INT"),
        (Kind.INT, "0x10", "Not a number of type INT"),
        (Kind.SHORT, "32768", "Not a number of type SHORT"),
        (Kind.LONG, "", "Not a number of type LONG"),
        (Kind.DOUBLE, "inf", "Not a number of type DOUBLE"),
        (Kind.DOUBLE, "1_0.0", "Not a number of type DOUBLE"),
        (Kind.DOUBLE, "", "Not a number of type DOUBLE"),
        (Kind.BOOLEAN, "yes", "Expected value to be either true or false"),
    ],
)
def test_refusals(kind: Kind, text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_value(kind, text)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (0.5, "0.5"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (0.00015, "1.5E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (123456789.5, "1.234567895E8"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (1e22, "1.0E22"),
        (-1.0, "-1.0"),
        (-12345678.0, "-1.2345678E7"),
        (float("inf"), "Infinity"),
    ],
)
def test_doubles_print_as_in_java(number: float, text: str) -> None:
    assert double_text(number) == text


@given(st.floats(allow_nan=False))
def test_a_printed_double_reads_back(number: float) -> None:
    value = parse_value(Kind.DOUBLE, double_text(number))
    assert isinstance(value, float)
    assert struct.pack(">d", value) == struct.pack(">d", number)


def test_every_default_reads_back_from_its_own_text() -> None:
    for setting in [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()]:
        if isinstance(setting.default, (bool, int, float, str, tuple)):
            text = value_text(setting.default)
            assert text is not None
            assert parse_value(setting.kind, text) == setting.default, setting


def test_every_setting_says_what_it_is_for() -> None:
    for setting in [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()]:
        assert setting.doc.endswith(".") and "\n" not in setting.doc, setting


def test_effective_settings_and_server_defaults_exist() -> None:
    assert BROKER_SETTINGS.keys() >= EFFECTIVE
    assert SERVER_DEFAULTS.keys() <= TOPIC_SETTINGS.keys()
    assert set(SERVER_DEFAULTS.values()) <= BROKER_SETTINGS.keys()


def test_attributes_are_those_of_the_registry() -> None:
    """The annotations of BrokerConfig name every setting, with the type of its values."""
    plain = {
        Kind.BOOLEAN: bool,
        Kind.STRING: str,
        Kind.INT: int,
        Kind.SHORT: int,
        Kind.LONG: int,
        Kind.DOUBLE: float,
        Kind.LIST: tuple[str, ...],
        Kind.CLASS: str,
        Kind.PASSWORD: str,
    }
    # Settings whose attribute is a parsed or resolved form; their types are fixed by the tests of that form.
    resolved = {
        "listeners",
        "advertised.listeners",
        "log.dirs",
        "log.roll.ms",
        "log.roll.jitter.ms",
        "log.retention.ms",
        "log.flush.interval.ms",
        "metadata.log.dir",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "controller.quorum.voters",
        "controller.quorum.bootstrap.servers",
        "max.connections.per.ip.overrides",
        "num.replica.alter.log.dirs.threads",
        "early.start.listeners",
    }
    hints = get_type_hints(BrokerAttributes)
    settings = {**BROKER_SETTINGS, **DYNAMIC_ONLY}
    assert hints.keys() == {setting.attribute for setting in settings.values()}
    for name, setting in settings.items():
        if name not in resolved:
            expected = plain[setting.kind]
            assert hints[setting.attribute] == (expected if setting.default is not None else expected | None)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("num.partitions", "0", "Invalid value 0 for configuration num.partitions: Value must be at least 1"),
        ("process.roles", "", "Configuration 'process.roles' must not be empty."),
        ("log.dirs", "/a,,/b", "Configuration 'log.dirs' values must not be empty."),
        ("controller.quorum.voters", "1localhost:9093", "1localhost:9093 is not a voter; write id@host:port"),
        ("controller.quorum.voters", "1@0.0.0.0:9093", "0.0.0.0 cannot be reached"),
        ("controller.quorum.bootstrap.servers", "localhost", "localhost is not an address; write host:port"),
        ("group.consumer.migration.policy", "sideways", "String must be one of (case insensitive)"),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("remote.log.storage.manager.class.name", " ", "String must be non-empty"),
    ],
)
def test_rules(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BROKER_SETTINGS[name].parse(text)
    assert message in caught.value.message
    assert caught.value.setting == name


def test_case_is_ignored_where_kafka_ignores_it() -> None:
    assert BROKER_SETTINGS["group.consumer.migration.policy"].parse("upgrade") == "upgrade"


def test_names_that_stand_in_for_each_other() -> None:
    assert synonyms_of("log.retention.minutes") == (
        "log.retention.ms",
        "log.retention.minutes",
        "log.retention.hours",
    )
    assert synonyms_of("num.partitions") == ("num.partitions",)
    prefixed = "listener.name.internal.ssl.keystore.password"
    assert synonyms_of(prefixed) == (prefixed, "ssl.keystore.password")
    assert base_name("listener.name.internal.plain.sasl.jaas.config") == "sasl.jaas.config"
