"""Metadata, CreateTopics, DeleteTopics, CreatePartitions and DescribeTopicPartitions. What is expected of an odd
request was asked of Apache Kafka 4.3.1."""

from __future__ import annotations

from typing import Any

import pytest
from support.fake_broker import CLUSTER_ID, FakeBroker

from config.addresses import Listener
from protocol.errors import ErrorCode
from protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.metadata.partition_change_record import PartitionChangeRecord
from protocol.uuids import DIRECTORY_LOST, Uuid

OTHER_LISTENER = Listener("INTERNAL", "127.0.0.1", 9094, "PLAINTEXT")
OMITTED = -2147483648


@pytest.fixture
def broker() -> FakeBroker:
    broker = FakeBroker().register()
    broker.create("t", partitions=3)
    return broker


def named(*names: str | None, auto: bool = False, **more: Any) -> MetadataRequest:
    asked = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=asked, allow_auto_topic_creation=auto, **more)


def errors(response: Any) -> dict[str, int]:
    return {topic.name: topic.error_code for topic in response.topics}


@pytest.mark.parametrize("version", range(14))
async def test_metadata_of_all_topics(broker: FakeBroker, version: int) -> None:
    request = MetadataRequest(topics=[] if version == 0 else None)
    response = await broker.ask(request, version)
    assert [(b.node_id, b.host, b.port) for b in response.brokers] == [(1, "broker1.example", 9092)]
    assert response.controller_id == (1 if version >= 1 else -1)
    assert response.cluster_id == (CLUSTER_ID if version >= 2 else None)
    (topic,) = response.topics
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "t", False)
    assert topic.topic_id == (broker.image.topics_by_name["t"].topic_id if version >= 10 else Uuid.ZERO)
    assert [(p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in topic.partitions] == [
        (i, 1, [1], [1]) for i in range(3)
    ]
    assert [p.leader_epoch for p in topic.partitions] == [0 if version >= 7 else -1] * 3
    assert topic.topic_authorized_operations == response.cluster_authorized_operations == OMITTED


@pytest.mark.parametrize("version", range(1, 14))
async def test_metadata_of_no_topics_is_about_the_brokers(broker: FakeBroker, version: int) -> None:
    response = await broker.ask(MetadataRequest(topics=[]), version)
    assert (response.topics, len(response.brokers)) == ([], 1)


@pytest.mark.parametrize("version", range(4, 14))
async def test_metadata_of_names(broker: FakeBroker, version: int) -> None:
    response = await broker.ask(named("nope", "t", "bad name", "t", "", "__consumer_offsets"), version)
    assert errors(response) == {
        "t": ErrorCode.NONE,
        "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "__consumer_offsets": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert len(response.topics) == 5  # once each
    assert [topic.name for topic in response.topics if topic.is_internal] == ["__consumer_offsets"]
    assert broker.controller.requests == []


@pytest.mark.parametrize("version", [12, 13])
async def test_metadata_by_id(broker: FakeBroker, version: int) -> None:
    """Where ids and names are mixed, Apache Kafka looks at the ids only."""
    known, unknown = broker.image.topics_by_name["t"].topic_id, Uuid.random()
    request = MetadataRequest(
        topics=[
            MetadataRequestTopic(topic_id=unknown, name=None),
            MetadataRequestTopic(topic_id=known, name=None),
            MetadataRequestTopic(name="other"),
        ]
    )
    response = await broker.ask(request, version)
    assert [(t.name, t.topic_id, t.error_code, len(t.partitions)) for t in response.topics] == [
        ("t", known, ErrorCode.NONE, 3),
        (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID, 0),
    ]
    assert broker.controller.requests == []


@pytest.mark.parametrize("version", [10, 11])
async def test_metadata_before_version_12_refuses_ids_and_missing_names(broker: FakeBroker, version: int) -> None:
    known = broker.image.topics_by_name["t"].topic_id
    for topic in (MetadataRequestTopic(topic_id=known, name=None), MetadataRequestTopic(name=None)):
        response = await broker.ask(MetadataRequest(topics=[topic]), version)
        assert [(t.error_code, t.name) for t in response.topics] == [(ErrorCode.INVALID_REQUEST, "")]


async def test_metadata_with_neither_name_nor_id(broker: FakeBroker) -> None:
    response = await broker.ask(named(None, auto=True))
    assert errors(response) == {"": ErrorCode.INVALID_REQUEST}


async def test_metadata_creates_what_is_missing_and_answers_with_it(broker: FakeBroker) -> None:
    response = await broker.ask(named("new", "t", "bad name", auto=True))
    assert errors(response) == {"new": 0, "t": 0, "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert [len(topic.partitions) for topic in response.topics] == [1, 3, 0]
    assert response.topics[0].topic_id == broker.image.topics_by_name["new"].topic_id
    await broker.ask(named("new", auto=True))
    assert len(broker.controller.requests) == 1  # what exists is not asked for again


async def test_metadata_creates_always_for_clients_that_cannot_say(broker: FakeBroker) -> None:
    assert errors(await broker.ask(named("new", auto=True), 3)) == {"new": 0}


async def test_metadata_creates_an_internal_topic_in_its_coordinators_shape() -> None:
    broker = FakeBroker({"offsets.topic.num.partitions": "4", "offsets.topic.replication.factor": "1"}).register()
    response = await broker.ask(named("__consumer_offsets", auto=True))
    assert [(t.error_code, t.is_internal, len(t.partitions)) for t in response.topics] == [(0, True, 4)]
    assert broker.image.topic_configs("__consumer_offsets") == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }


@pytest.mark.parametrize("name", ["__transaction_state", "__share_group_state"])
async def test_metadata_of_an_internal_topic_that_needs_more_brokers(broker: FakeBroker, name: str) -> None:
    """They have three replicas by default."""
    response = await broker.ask(named(name, auto=True))
    assert errors(response) == {name: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert name not in broker.image.topics_by_name


async def test_metadata_does_not_create_a_name_that_collides(broker: FakeBroker) -> None:
    broker.create("a.b")
    assert errors(await broker.ask(named("a_b", auto=True))) == {"a_b": ErrorCode.INVALID_TOPIC_EXCEPTION}
    meta = await broker.ask(named("__cluster_metadata", auto=True))
    assert errors(meta) == {"__cluster_metadata": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_metadata_creates_nothing_where_it_is_switched_off() -> None:
    broker = FakeBroker({"auto.create.topics.enable": "false"}).register()
    response = await broker.ask(named("new", auto=True))
    assert errors(response) == {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert "new" not in broker.image.topics_by_name


@pytest.mark.parametrize("version", range(8, 14))
async def test_metadata_with_operations(broker: FakeBroker, version: int) -> None:
    """The numbers are what Apache Kafka sends without an authorizer."""
    cluster = {"include_cluster_authorized_operations": True} if version <= 10 else {}
    request = named("t", "nope", include_topic_authorized_operations=True, **cluster)
    response = await broker.ask(request, version)
    assert [topic.topic_authorized_operations for topic in response.topics] == [3576, 3576]
    assert response.cluster_authorized_operations == (8096 if version <= 10 else OMITTED)


@pytest.mark.parametrize("version", range(14))
async def test_metadata_through_a_listener_that_the_leader_does_not_have(broker: FakeBroker, version: int) -> None:
    response = await broker.ask(named("t", auto=True), version, listener=OTHER_LISTENER)
    assert response.brokers == []
    assert response.controller_id == -1
    partition = response.topics[0].partitions[0]
    expected = ErrorCode.LISTENER_NOT_FOUND if version >= 6 else ErrorCode.LEADER_NOT_AVAILABLE
    assert (partition.error_code, partition.leader_id) == (expected, -1)
    assert partition.replica_nodes == ([] if version == 0 else [1])
    assert partition.offline_replicas == ([1] if version >= 5 else [])


@pytest.mark.parametrize("version", [1, 13])
async def test_metadata_of_a_partition_without_a_leader(broker: FakeBroker, version: int) -> None:
    topic_id = broker.image.topics_by_name["t"].topic_id
    broker.controller.apply([PartitionChangeRecord(partition_id=1, topic_id=topic_id, leader=-1)])
    response = await broker.ask(named("t", auto=True), version)
    codes = [partition.error_code for partition in response.topics[0].partitions]
    assert codes == [0, ErrorCode.LEADER_NOT_AVAILABLE, 0]


async def test_metadata_tells_of_fenced_brokers_and_failed_directories_as_offline_replicas() -> None:
    broker = FakeBroker().register().register(2).register(3)
    topic_id = broker.create("t", partitions=1, replicas=(1, 2, 3))
    own = broker.image.brokers[1].directories[0]
    broker.controller.apply(
        [
            PartitionChangeRecord(
                partition_id=0,
                topic_id=topic_id,
                directories=[own, DIRECTORY_LOST, broker.image.brokers[3].directories[0]],
            )
        ]
    )
    partition = (await broker.ask(named("t"))).topics[0].partitions[0]
    assert (partition.error_code, partition.offline_replicas) == (0, [2])
    broker.register(3, fenced=True)
    response = await broker.ask(named("t"))
    assert sorted(response.topics[0].partitions[0].offline_replicas) == [2, 3]
    assert [node.node_id for node in response.brokers] == [1, 2]


@pytest.mark.parametrize("version", range(2, 8))
async def test_create_topics(broker: FakeBroker, version: int) -> None:
    topics = [
        CreatableTopic(
            name="a",
            num_partitions=2,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="retention.ms", value="1000")],
        ),
        CreatableTopic(name="t", num_partitions=1, replication_factor=1),
        CreatableTopic(name="bad name", num_partitions=1, replication_factor=1),
        CreatableTopic(name="zero", num_partitions=0, replication_factor=1),
        CreatableTopic(name="many", num_partitions=1, replication_factor=2),
        CreatableTopic(
            name="c",
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="nope", value="1")],
        ),
    ]
    response = await broker.ask(CreateTopicsRequest(topics=topics), version)
    assert errors(response) == {
        "a": 0,
        "t": ErrorCode.TOPIC_ALREADY_EXISTS,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "zero": ErrorCode.INVALID_PARTITIONS,
        "many": ErrorCode.INVALID_REPLICATION_FACTOR,
        "c": ErrorCode.INVALID_CONFIG,
    }
    made = response.topics[0]
    if version >= 5:
        assert (made.num_partitions, made.replication_factor) == (2, 1)
        assert {c.name: (c.value, c.config_source) for c in made.configs}["retention.ms"] == ("1000", 1)
    assert made.topic_id == (broker.image.topics_by_name["a"].topic_id if version >= 7 else Uuid.ZERO)
    assert len(broker.image.topics_by_name["a"].partitions) == 2


async def test_create_topics_validate_only(broker: FakeBroker) -> None:
    topic = CreatableTopic(name="a", num_partitions=2, replication_factor=1)
    response = await broker.ask(CreateTopicsRequest(topics=[topic, topic], validate_only=True))
    assert [(t.name, t.error_code, t.error_message) for t in response.topics] == [
        ("a", ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    ]
    response = await broker.ask(CreateTopicsRequest(topics=[topic], validate_only=True))
    assert response.topics[0].error_code == 0
    assert "a" not in broker.image.topics_by_name


@pytest.mark.parametrize("version", range(1, 7))
async def test_delete_topics(broker: FakeBroker, version: int) -> None:
    if version >= 6:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t"), DeleteTopicState(name="nope")])
    else:
        request = DeleteTopicsRequest(topic_names=["t", "nope"])
    response = await broker.ask(request, version)
    assert {r.name: r.error_code for r in response.responses} == {
        "t": 0,
        "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert "t" not in broker.image.topics_by_name


async def test_delete_topics_by_id_and_malformed(broker: FakeBroker) -> None:
    known, unknown = broker.image.topics_by_name["t"].topic_id, Uuid.random()
    states = [
        DeleteTopicState(topic_id=unknown),
        DeleteTopicState(),
        DeleteTopicState(name="x", topic_id=known),
        DeleteTopicState(topic_id=known),
    ]
    response = await broker.ask(DeleteTopicsRequest(topics=states))
    assert {(r.name, r.error_code) for r in response.responses} == {
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        (None, ErrorCode.INVALID_REQUEST),
        ("x", ErrorCode.INVALID_REQUEST),
        ("t", ErrorCode.NONE),
    }


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.INVALID_REQUEST), (5, ErrorCode.TOPIC_DELETION_DISABLED)])
async def test_delete_topics_where_it_is_switched_off(version: int, code: ErrorCode) -> None:
    broker = FakeBroker({"delete.topic.enable": "false"}).register()
    broker.create("t")
    response = await broker.ask(DeleteTopicsRequest(topic_names=["t"]), version)
    assert [r.error_code for r in response.responses] == [code]
    assert "t" in broker.image.topics_by_name


@pytest.mark.parametrize("version", range(4))
async def test_create_partitions(broker: FakeBroker, version: int) -> None:
    topics = [
        CreatePartitionsTopic(name="t", count=5, assignments=None),
        CreatePartitionsTopic(name="nope", count=5, assignments=None),
    ]
    response = await broker.ask(CreatePartitionsRequest(topics=topics), version)
    assert {r.name: r.error_code for r in response.results} == {"t": 0, "nope": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert len(broker.image.topics_by_name["t"].partitions) == 5


@pytest.mark.parametrize(
    ("count", "assignments", "code"),
    [
        (3, None, ErrorCode.INVALID_PARTITIONS),
        (2, None, ErrorCode.INVALID_PARTITIONS),
        (0, None, ErrorCode.INVALID_PARTITIONS),
        (5, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (4, [[2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (4, [[]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (4, [[1]], ErrorCode.NONE),
    ],
)
async def test_create_partitions_refusals(
    broker: FakeBroker, count: int, assignments: list[list[int]] | None, code: ErrorCode
) -> None:
    given = None if assignments is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
    topic = CreatePartitionsTopic(name="t", count=count, assignments=given)
    response = await broker.ask(CreatePartitionsRequest(topics=[topic], validate_only=True))
    assert [r.error_code for r in response.results] == [code]
    assert len(broker.image.topics_by_name["t"].partitions) == 3


def describe(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


def pages(response: Any) -> tuple[list[tuple[str, list[int]]], tuple[str, int] | None]:
    topics = [(topic.name, [p.partition_index for p in topic.partitions]) for topic in response.topics]
    cursor = response.next_cursor
    return topics, None if cursor is None else (cursor.topic_name, cursor.partition_index)


async def test_describe_topic_partitions(broker: FakeBroker) -> None:
    response = await broker.ask(describe("t", "nope", "bad name", "t"))
    assert pages(response) == ([("bad name", []), ("nope", []), ("t", [0, 1, 2])], None)
    assert [topic.error_code for topic in response.topics] == [
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
    ]
    assert [topic.topic_authorized_operations for topic in response.topics] == [3576] * 3
    partition = response.topics[2].partitions[0]
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 1, 0)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([1], [1], [])
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])


@pytest.mark.parametrize(
    ("names", "limit", "cursor", "expected"),
    [
        ((), 2000, None, ([("a", [0]), ("t", [0, 1, 2])], None)),
        (("t", "a"), 2, None, ([("a", [0]), ("t", [0])], ("t", 1))),
        (("t", "a"), 3, None, ([("a", [0]), ("t", [0, 1])], ("t", 2))),
        (("t", "a"), 4, None, ([("a", [0]), ("t", [0, 1, 2])], None)),
        (("t", "a"), 1, None, ([("a", [0])], ("t", 0))),
        (("t", "a", "n"), 1, None, ([("a", [0])], ("n", 0))),
        (("t", "a", "n"), 1, ("n", 0), ([("n", []), ("t", [0])], ("t", 1))),
        (("t", "a"), 2, ("t", 1), ([("t", [1, 2])], None)),
        ((), 2, ("t", 1), ([("t", [1, 2])], None)),
        ((), 9, ("b", 5), ([("t", [0, 1, 2])], None)),
        (("t", "a"), 2, ("t", 7), ([("t", [])], None)),
        (("t",), 0, None, ([("t", [0])], ("t", 1))),
        (("t",), -1, None, ([("t", [0])], ("t", 1))),
    ],
)
async def test_describe_topic_partitions_page_by_page(
    broker: FakeBroker, names: tuple[str, ...], limit: int, cursor: tuple[str, int] | None, expected: Any
) -> None:
    broker.create("a")
    assert pages(await broker.ask(describe(*names, limit=limit, cursor=cursor))) == expected


@pytest.mark.parametrize("cursor", [("t", -1), ("nope", 0), ("zzz", 1), ("b", 1)])
async def test_describe_topic_partitions_with_a_cursor_that_points_nowhere(
    broker: FakeBroker, cursor: tuple[str, int]
) -> None:
    broker.create("a")
    response = await broker.ask(describe("t", "a", cursor=cursor))
    assert [(t.name, t.error_code) for t in response.topics] == [
        ("t", ErrorCode.INVALID_REQUEST),
        ("a", ErrorCode.INVALID_REQUEST),
    ]
    assert response.next_cursor is None


async def test_describe_topic_partitions_is_bounded_by_the_broker() -> None:
    broker = FakeBroker({"max.request.partition.size.limit": "2"}).register()
    broker.create("t", partitions=3)
    assert pages(await broker.ask(describe("t"))) == ([("t", [0, 1])], ("t", 2))


async def test_describe_topic_partitions_walks_everything_once(broker: FakeBroker) -> None:
    for index in range(20):
        broker.create(f"topic{index}", partitions=1 + index % 4)
    seen: list[tuple[str, int]] = []
    cursor: tuple[str, int] | None = None
    while True:
        topics, cursor = pages(await broker.ask(describe(limit=3, cursor=cursor)))
        seen += [(name, index) for name, indexes in topics for index in indexes]
        if cursor is None:
            break
    everything = [(t.name, i) for t in broker.image.topics_by_name.values() for i in t.partitions]
    assert seen == sorted(everything)
