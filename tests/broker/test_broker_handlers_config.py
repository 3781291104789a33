"""DescribeConfigs, IncrementalAlterConfigs, AlterConfigs and ListConfigResources. What is expected of an odd request
was asked of Apache Kafka 4.3.1."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from support.fake_broker import FakeBroker

from protocol.errors import ErrorCode
from protocol.messages import alter_configs as legacy
from protocol.messages import incremental_alter_configs as incremental
from protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.list_config_resources import ListConfigResourcesRequest
from protocol.metadata.config_record import ConfigRecord

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture
def broker() -> FakeBroker:
    broker = FakeBroker({"log.retention.ms": "86400000"}).register()
    broker.create("t", retention_ms="5000")
    return broker


@pytest.fixture
def a_logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("broker.test_of_levels")
    logger.setLevel(logging.WARNING)
    yield logger
    logger.setLevel(logging.NOTSET)


def configure(broker: FakeBroker, kind: int, name: str, key: str, value: str) -> None:
    broker.controller.apply([ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)])


async def describe(
    broker: FakeBroker, kind: int, name: str, keys: list[str] | None = None, version: int = 4, **options: bool
) -> Any:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    response = await broker.ask(DescribeConfigsRequest(resources=[resource], **options), version)
    (result,) = response.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def synonyms(entry: Any) -> list[tuple[str, str | None, int]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms]


@pytest.mark.parametrize("version", range(1, 5))
async def test_describe_a_topic(broker: FakeBroker, version: int) -> None:
    documented = {"include_documentation": True} if version >= 3 else {}
    result = await describe(broker, TOPIC, "t", None, version, include_synonyms=True, **documented)
    assert result.error_code == 0
    entries = {entry.name: entry for entry in result.configs}
    assert len(entries) == len(result.configs) == 33  # every topic setting of Apache Kafka 4.3.1
    retention = entries["retention.ms"]
    assert (retention.value, retention.config_source, retention.read_only) == ("5000", 1, False)
    assert synonyms(retention) == [
        ("retention.ms", "5000", 1),
        ("log.retention.ms", "86400000", 4),
        ("log.retention.hours", "168", 5),
    ]
    assert entries["cleanup.policy"].value == "delete"
    if version >= 3:
        assert (retention.config_type, entries["cleanup.policy"].config_type) == (5, 7)
        assert all(entry.documentation for entry in result.configs)


async def test_describe_leaves_out_what_was_not_asked_for(broker: FakeBroker) -> None:
    result = await describe(broker, TOPIC, "t", ["retention.ms", "nope", "retention.ms", "segment.ms"])
    assert sorted(entry.name for entry in result.configs) == ["retention.ms", "segment.ms"]
    assert all(entry.synonyms == [] and entry.documentation is None for entry in result.configs)
    assert len((await describe(broker, TOPIC, "t", [])).configs) == 33


@pytest.mark.parametrize(
    ("kind", "name", "code", "message"),
    [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: the empty string is not allowed"),
        (TOPIC, "..", ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: '..' is not allowed"),
        (BROKER, "2", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1 or empty string, but received 2"),
        (BROKER, "-1", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1 or empty string, but received -1"),
        (BROKER, "x", ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
        (LOGGER, "", ErrorCode.INVALID_REQUEST, "Broker id must not be empty"),
        (LOGGER, "2", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1 but received 2"),
        (LOGGER, "x", ErrorCode.INVALID_REQUEST, "Broker id must be an integer, but it is: x"),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"),
        (GROUP, "", ErrorCode.INVALID_REQUEST, "Group name must not be empty"),
        (0, "x", ErrorCode.INVALID_REQUEST, None),
        (3, "x", ErrorCode.INVALID_REQUEST, None),
        (-1, "x", ErrorCode.INVALID_REQUEST, None),
        (99, "x", ErrorCode.INVALID_REQUEST, None),
    ],
)
async def test_describe_refuses(broker: FakeBroker, kind: int, name: str, code: ErrorCode, message: str | None) -> None:
    result = await describe(broker, kind, name)
    assert (result.error_code, result.error_message, result.configs) == (code, message, [])


async def test_describe_answers_each_resource_of_a_request(broker: FakeBroker) -> None:
    wanted = [(TOPIC, "t"), (TOPIC, "nope"), (BROKER, "1"), (TOPIC, "t")]
    resources = [DescribeConfigsResource(resource_type=kind, resource_name=name) for kind, name in wanted]
    response = await broker.ask(DescribeConfigsRequest(resources=resources))
    assert [(r.resource_type, r.resource_name) for r in response.results] == wanted
    assert [r.error_code for r in response.results] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, 0]
    assert (await broker.ask(DescribeConfigsRequest(resources=[]))).results == []


@pytest.mark.parametrize("version", range(1, 5))
async def test_describe_this_broker(broker: FakeBroker, version: int) -> None:
    configure(broker, BROKER, "", "log.cleaner.threads", "3")
    configure(broker, BROKER, "1", "log.cleaner.threads", "2")
    result = await describe(broker, BROKER, "1", None, version, include_synonyms=True)
    entries = {entry.name: entry for entry in result.configs}
    assert len(entries) > 300
    threads = entries["log.cleaner.threads"]
    assert (threads.value, threads.config_source, threads.read_only) == ("2", 2, False)
    name = "log.cleaner.threads"
    assert synonyms(threads) == [(name, "2", 2), (name, "3", 3), (name, "1", 5)]
    assert (entries["num.partitions"].value, entries["num.partitions"].read_only) == ("1", True)
    assert all(entry.value is None for entry in result.configs if entry.is_sensitive)


async def test_describe_the_defaults_of_all_brokers(broker: FakeBroker) -> None:
    assert (await describe(broker, BROKER, "")).configs == []
    configure(broker, BROKER, "", "log.cleaner.threads", "3")
    (entry,) = (await describe(broker, BROKER, "", include_synonyms=True)).configs
    assert (entry.name, entry.value, entry.config_source) == ("log.cleaner.threads", "3", 3)
    assert synonyms(entry) == [("log.cleaner.threads", "3", 3)]


async def test_a_default_of_all_brokers_shows_in_a_topic(broker: FakeBroker) -> None:
    configure(broker, BROKER, "", "min.insync.replicas", "1")
    (entry,) = (await describe(broker, TOPIC, "t", ["min.insync.replicas"])).configs
    assert (entry.value, entry.config_source) == ("1", 3)


async def test_describe_loggers(broker: FakeBroker, a_logger: logging.Logger) -> None:
    entries = {entry.name: entry for entry in (await describe(broker, LOGGER, "1")).configs}
    assert "root" in entries
    entry = entries[a_logger.name]
    assert (entry.value, entry.config_source, entry.read_only, entry.synonyms) == ("WARN", 6, False, [])


async def test_describe_client_metrics(broker: FakeBroker) -> None:
    configure(broker, CLIENT_METRICS, "m", "interval.ms", "1000")
    entries = {e.name: e for e in (await describe(broker, CLIENT_METRICS, "m", include_synonyms=True)).configs}
    assert {name: (e.value, e.config_source, e.config_type) for name, e in entries.items()} == {
        "interval.ms": ("1000", 7, 3),
        "match": ("", 5, 7),
        "metrics": ("", 5, 7),
    }
    assert synonyms(entries["interval.ms"]) == [("interval.ms", "1000", 7)]


async def test_describe_a_group(broker: FakeBroker) -> None:
    configure(broker, GROUP, "g", "consumer.session.timeout.ms", "50000")
    entries = {e.name: e for e in (await describe(broker, GROUP, "g", include_synonyms=True)).configs}
    assert len(entries) == 17
    timeout, heartbeat = entries["consumer.session.timeout.ms"], entries["share.heartbeat.interval.ms"]
    assert (timeout.value, timeout.config_source, timeout.read_only) == ("50000", 8, False)
    assert synonyms(timeout)[-1] == ("group.consumer.session.timeout.ms", "45000", 5)
    assert (heartbeat.value, heartbeat.config_source, heartbeat.config_type) == ("5000", 5, 3)
    assert synonyms(heartbeat) == [("group.share.heartbeat.interval.ms", "5000", 5)]
    assert synonyms(entries["share.isolation.level"]) == [("share.isolation.level", "read_uncommitted", 5)]


def changes(kind: int, name: str, *operations: tuple[str, int, str | None]) -> incremental.AlterConfigsResource:
    return incremental.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in operations
        ],
    )


async def alter(broker: FakeBroker, *resources: Any, version: int = 1, validate_only: bool = False) -> list[Any]:
    request = incremental.IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    response = await broker.ask(request, version)
    assert [(r.resource_type, r.resource_name) for r in response.responses] == [
        (r.resource_type, r.resource_name) for r in resources
    ]
    return [(answer.error_code, answer.error_message) for answer in response.responses]


@pytest.mark.parametrize("version", range(2))
async def test_incremental_alter_topics(broker: FakeBroker, version: int) -> None:
    answers = await alter(
        broker,
        changes(TOPIC, "nope", ("retention.ms", SET, "1")),
        changes(TOPIC, "t", ("segment.ms", SET, "60000"), ("retention.ms", DELETE, None)),
        version=version,
    )
    assert answers == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'nope' does not exist."), (0, None)]
    assert broker.image.topic_configs("t") == {"segment.ms": "60000"}


@pytest.mark.parametrize(
    ("resource", "code", "message"),
    [
        (changes(TOPIC, "t", ("nope", SET, "1")), ErrorCode.INVALID_CONFIG, "Unknown topic config name: nope"),
        (
            changes(TOPIC, "t", ("retention.ms", SET, "x")),
            ErrorCode.INVALID_CONFIG,
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            changes(TOPIC, "t", ("retention.ms", SET, None)),
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : retention.ms",
        ),
        (
            changes(TOPIC, "t", ("retention.ms", APPEND, "1")),
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            changes(TOPIC, "t", ("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        (changes(TOPIC, "", ("a", SET, "1")), ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."),
        (
            changes(BROKER, "2", ("log.cleaner.threads", SET, "1")),
            ErrorCode.INVALID_REQUEST,
            "Unexpected broker id, expected 1, but received 2",
        ),
        (
            changes(BROKER, "x", ("log.cleaner.threads", SET, "1")),
            ErrorCode.INVALID_REQUEST,
            "Node id must be an integer, but it is: x",
        ),
        (
            changes(BROKER, "1", ("log.dirs", SET, "/x")),
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: [log.dirs]",
        ),
        (
            changes(LOGGER, "2", ("root", SET, "INFO")),
            ErrorCode.INVALID_REQUEST,
            "Unexpected node id. Expected 1, but received 2",
        ),
        (changes(LOGGER, "1", ("no.such", SET, "INFO")), ErrorCode.INVALID_CONFIG, "Logger no.such does not exist!"),
        (changes(0, "x", ("a", SET, "b")), ErrorCode.INVALID_REQUEST, "Unknown resource type 0"),
        (changes(3, "x", ("a", SET, "b")), ErrorCode.INVALID_REQUEST, "Unknown resource type 3"),
        (changes(99, "x", ("a", SET, "b")), ErrorCode.INVALID_REQUEST, "Unknown resource type 99"),
    ],
)
async def test_incremental_alter_refuses(broker: FakeBroker, resource: Any, code: ErrorCode, message: str) -> None:
    before = broker.image
    assert await alter(broker, resource) == [(code, message)]
    assert broker.image is before


async def test_incremental_alter_refuses_a_resource_that_appears_twice(broker: FakeBroker) -> None:
    twice = [changes(TOPIC, "t", ("retention.ms", SET, "1")), changes(TOPIC, "t", ("segment.ms", SET, "60000"))]
    refused = (ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
    assert await alter(broker, *twice) == [refused, refused]
    assert broker.controller.requests == []


async def test_incremental_alter_validate_only(broker: FakeBroker) -> None:
    before = broker.image
    assert await alter(broker, changes(TOPIC, "t", ("retention.ms", SET, "1")), validate_only=True) == [(0, None)]
    assert broker.image is before
    assert await alter(broker) == []


async def test_incremental_alter_brokers(broker: FakeBroker) -> None:
    answers = await alter(
        broker,
        changes(BROKER, "1", ("log.cleaner.threads", SET, "2")),
        changes(BROKER, "", ("log.cleaner.threads", SET, "1")),
    )
    assert answers == [(0, None), (0, None)]
    assert broker.image.broker_configs(1) == {"log.cleaner.threads": "2"}
    assert broker.image.default_broker_configs == {"log.cleaner.threads": "1"}


async def test_incremental_alter_loggers(broker: FakeBroker, a_logger: logging.Logger) -> None:
    name = a_logger.name
    assert await alter(broker, changes(LOGGER, "1", (name, SET, "DEBUG")), validate_only=True) == [(0, None)]
    assert a_logger.level == logging.WARNING
    assert await alter(broker, changes(LOGGER, "1", (name, SET, "DEBUG"))) == [(0, None)]
    assert a_logger.level == logging.DEBUG
    assert await alter(broker, changes(LOGGER, "1", (name, DELETE, None))) == [(0, None)]
    assert a_logger.level == logging.NOTSET
    assert broker.controller.requests == []


@pytest.mark.parametrize(
    ("operation", "value", "code"),
    [
        (SET, "LOUD", ErrorCode.INVALID_CONFIG),
        (SET, None, ErrorCode.INVALID_REQUEST),
        (APPEND, "INFO", ErrorCode.INVALID_REQUEST),
        (SUBTRACT, "INFO", ErrorCode.INVALID_REQUEST),
        (9, "INFO", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_incremental_alter_loggers_all_or_none(
    broker: FakeBroker, a_logger: logging.Logger, operation: int, value: str | None, code: ErrorCode
) -> None:
    resource = changes(LOGGER, "1", (a_logger.name, SET, "DEBUG"), ("root", operation, value))
    ((answered, message),) = await alter(broker, resource)
    assert (answered, bool(message)) == (code, True)
    assert a_logger.level == logging.WARNING


async def test_the_root_logger_keeps_a_level(broker: FakeBroker, a_logger: logging.Logger) -> None:
    ((code, message),) = await alter(broker, changes(LOGGER, "1", ("root", DELETE, None)))
    assert (code, message) == (
        ErrorCode.INVALID_REQUEST,
        "Removing the log level of the root logger is not allowed",
    )
    name = a_logger.name
    ((code, message),) = await alter(broker, changes(LOGGER, "1", (name, SET, "INFO"), (name, SET, "WARN")))
    assert (code, message) == (ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


@pytest.mark.parametrize("version", range(3))
async def test_alter_configs_replaces_everything(broker: FakeBroker, version: int) -> None:
    def replaced(kind: int, name: str, **settings: str | None) -> legacy.AlterConfigsResource:
        entries = [legacy.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()]
        return legacy.AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)

    resources = [
        replaced(TOPIC, "nope", retention_ms="1"),
        replaced(TOPIC, "t", segment_ms="60000"),
        replaced(LOGGER, "1", root="INFO"),
        replaced(BROKER, "7", log_cleaner_threads="1"),
    ]
    response = await broker.ask(legacy.AlterConfigsRequest(resources=resources), version)
    assert [(r.resource_type, r.resource_name, r.error_code, r.error_message) for r in response.responses] == [
        (TOPIC, "nope", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'nope' does not exist."),
        (TOPIC, "t", 0, None),
        (LOGGER, "1", ErrorCode.INVALID_REQUEST, "Unknown resource type 8"),
        (BROKER, "7", ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1, but received 7"),
    ]
    assert broker.image.topic_configs("t") == {"segment.ms": "60000"}
    twice = [replaced(TOPIC, "t"), replaced(TOPIC, "t")]
    response = await broker.ask(legacy.AlterConfigsRequest(resources=twice), version)
    assert [r.error_code for r in response.responses] == [ErrorCode.INVALID_REQUEST] * 2
    assert broker.image.topic_configs("t") == {"segment.ms": "60000"}


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ([TOPIC], [("t", TOPIC)]),
        ([BROKER], [("1", BROKER)]),
        ([LOGGER], [("1", LOGGER)]),
        ([CLIENT_METRICS], [("m", CLIENT_METRICS)]),
        ([GROUP], [("g", GROUP)]),
        ([TOPIC, BROKER, TOPIC], [("1", BROKER), ("t", TOPIC)]),
        ([], [("g", GROUP), ("m", CLIENT_METRICS), ("1", LOGGER), ("1", BROKER), ("t", TOPIC)]),
    ],
)
async def test_list_config_resources(broker: FakeBroker, types: list[int], expected: list[tuple[str, int]]) -> None:
    configure(broker, CLIENT_METRICS, "m", "interval.ms", "1000")
    configure(broker, GROUP, "g", "consumer.session.timeout.ms", "50000")
    response = await broker.ask(ListConfigResourcesRequest(resource_types=types), 1)
    assert response.error_code == 0
    assert [(r.resource_name, r.resource_type) for r in response.config_resources] == expected


async def test_list_config_resources_of_version_0_is_about_client_metrics(broker: FakeBroker) -> None:
    configure(broker, CLIENT_METRICS, "m", "interval.ms", "1000")
    response = await broker.ask(ListConfigResourcesRequest(), 0)
    assert [resource.resource_name for resource in response.config_resources] == ["m"]


@pytest.mark.parametrize("types", [[0], [3], [99], [TOPIC, 99], [-1]])
async def test_list_config_resources_of_an_unknown_type(broker: FakeBroker, types: list[int]) -> None:
    response = await broker.ask(ListConfigResourcesRequest(resource_types=types), 1)
    assert (response.error_code, response.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])
