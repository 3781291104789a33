"""kafka-python: the admin client."""

from __future__ import annotations

import itertools

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    KafkaError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from support.processes import wait_until
from support.scenario import Server

_numbers = itertools.count()


@pytest.fixture
def name() -> str:
    return f"admin-{next(_numbers)}"


def produce(server: Server, topic: str, count: int) -> None:
    producer = KafkaProducer(bootstrap_servers=server.bootstrap)
    for number in range(count):
        producer.send(topic, b"%d" % number, partition=0)
    producer.flush()
    producer.close()


def test_create_describe_delete(admin: KafkaAdminClient, name: str) -> None:
    admin.create_topics({name: {"num_partitions": 3, "replication_factor": 1}}, wait_for_metadata=True)
    assert name in admin.list_topics()
    (described,) = admin.describe_topics([name])
    assert described["name"] == name
    partitions = sorted(described["partitions"], key=lambda partition: partition["partition_index"])
    assert [partition["partition_index"] for partition in partitions] == [0, 1, 2]
    assert all(partition["leader_id"] == 1 for partition in partitions)
    assert all(partition["isr_nodes"] == [1] for partition in partitions)
    admin.delete_topics([name])
    wait_until(lambda: name not in admin.list_topics(), 10, "the topic is gone")


def test_create_with_assignment_and_configs(admin: KafkaAdminClient, name: str) -> None:
    admin.create_topics(
        {name: {"assignments": {0: [1], 1: [1]}, "configs": {"retention.ms": "1234567"}}}, wait_for_metadata=True
    )
    (described,) = admin.describe_topics([name])
    assert len(described["partitions"]) == 2
    assert topic_configs(admin, name)["retention.ms"]["value"] == "1234567"


@pytest.mark.parametrize(
    ("topic", "options", "error"),
    [
        ("bad name", {}, InvalidTopicError),
        ("..", {}, InvalidTopicError),
        ("x" * 250, {}, InvalidTopicError),
        ("admin-zero", {"num_partitions": 0}, InvalidPartitionsError),
        ("admin-many", {"num_partitions": 1, "replication_factor": 3}, InvalidReplicationFactorError),
        ("admin-conf", {"configs": {"retention.ms": "soon"}}, InvalidConfigurationError),
        ("admin-conf", {"configs": {"no.such.setting": "1"}}, InvalidConfigurationError),
    ],
)
def test_refused_topics(
    admin: KafkaAdminClient, topic: str, options: dict[str, object], error: type[KafkaError]
) -> None:
    with pytest.raises(error):
        admin.create_topics({topic: options})
    assert topic not in admin.list_topics()


def test_existing_and_unknown_topics(admin: KafkaAdminClient, topic: str) -> None:
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([topic])
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics(["admin-no-such-topic"])


def test_validate_only_creates_nothing(admin: KafkaAdminClient, name: str) -> None:
    admin.create_topics({name: {"num_partitions": 2}}, validate_only=True)
    assert name not in admin.list_topics()


def test_more_partitions(admin: KafkaAdminClient, topic: str) -> None:
    admin.create_partitions({topic: 4})
    wait_until(lambda: len(admin.describe_topics([topic])[0]["partitions"]) == 4, 10, "four partitions")
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({topic: 2})


def topic_configs(admin: KafkaAdminClient, topic: str, **options: object) -> dict[str, dict[str, object]]:
    answer = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)], config_filter="all", **options)
    (by_name,) = answer.values()
    configs: dict[str, dict[str, object]] = by_name[topic]
    return configs


def test_configs(admin: KafkaAdminClient, topic: str) -> None:
    defaults = topic_configs(admin, topic, include_synonyms=True)
    assert defaults["retention.ms"]["value"] == "604800000"
    assert defaults["cleanup.policy"]["value"] == "delete"
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "5000", "flush.ms": "9"})
    admin.alter_configs([resource])
    wait_until(lambda: topic_configs(admin, topic)["flush.ms"]["value"] == "9", 10, "the change shows")
    assert topic_configs(admin, topic)["retention.ms"]["value"] == "5000"
    admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=["flush.ms"])])
    wait_until(lambda: topic_configs(admin, topic)["flush.ms"]["value"] != "9", 10, "back to the default")
    assert topic_configs(admin, topic)["retention.ms"]["value"] == "5000"


def test_delete_records(admin: KafkaAdminClient, server: Server, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    produce(server, topic, 10)
    answer = admin.delete_records({partition: 4})
    assert answer[partition]["low_watermark"] == 4
    assert admin.list_partition_offsets({partition: -2})[partition].offset == 4
    assert admin.list_partition_offsets({partition: -1})[partition].offset == 10
    assert admin.delete_records({partition: -1})[partition]["low_watermark"] == 10


def test_cluster(admin: KafkaAdminClient, server: Server) -> None:
    cluster = admin.describe_cluster()
    assert len(cluster["cluster_id"]) == 22
    (broker,) = cluster["brokers"]
    assert (broker["host"], broker["port"]) == ("127.0.0.1", server.port)


def test_topic_partitions_with_cursor(admin: KafkaAdminClient, name: str) -> None:
    admin.create_topics({name: {"num_partitions": 5}}, wait_for_metadata=True)
    seen: list[int] = []
    cursor = None
    for _ in range(5):
        answer = admin.describe_topic_partitions([name], response_partition_limit=2, cursor=cursor)
        seen += [partition["partition_index"] for topic in answer["topics"] for partition in topic["partitions"]]
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    assert seen == [0, 1, 2, 3, 4]


def test_log_dirs(admin: KafkaAdminClient, server: Server, topic: str) -> None:
    produce(server, topic, 5)
    answer = admin.describe_log_dirs([topic])
    found = str(answer)
    assert str(server.data_dir) in found
    assert topic in found


def test_quorum(admin: KafkaAdminClient) -> None:
    quorum = admin.describe_metadata_quorum()
    assert "'leader_id': 1" in str(quorum)


def test_config_resources(admin: KafkaAdminClient, topic: str) -> None:
    resources = admin.list_config_resources(["TOPIC"])
    assert any(topic in names for names in resources.values())
