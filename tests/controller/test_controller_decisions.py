"""The state machines: topics, partitions, placement, configs, brokers. Kafka's codes and sentences."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.metadata import broker_record, cluster, create, image_of, node_config, topic

from controller import brokers, configs, partitions, producer_ids, topics
from controller.brokers import Registration
from controller.image import Endpoint, MetadataImage
from controller.placement import place
from protocol.errors import ApiError, ErrorCode
from protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from protocol.messages.create_topics import CreatableTopic
from protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.metadata.producer_ids_record import ProducerIdsRecord
from protocol.uuids import Uuid

CONFIG = node_config(Path("/nowhere"))
THREE = cluster(broker_record(1), broker_record(2), broker_record(3))


def made(image: MetadataImage, *wanted: CreatableTopic) -> tuple[MetadataImage, list[tuple[ErrorCode, str | None]]]:
    outcome = topics.create_topics(image, create(*wanted), config=CONFIG, random=Random(3))
    answers = [(ErrorCode(result.error_code), result.error_message) for result in outcome.response.topics]
    return (image_of(outcome.records, image) if outcome.records else image), answers


def test_replicas_are_spread_evenly_over_brokers_and_racks() -> None:
    image = cluster(*(broker_record(i, rack=f"r{i % 3}") for i in range(1, 7)))
    placed = place(60, 3, image.brokers.values(), Random(1))
    assert all(len(set(replicas)) == 3 for replicas in placed)
    assert all(len({image.brokers[b].rack for b in replicas}) == 3 for replicas in placed)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {10}
    assert set(Counter(b for replicas in placed for b in replicas).values()) == {30}


def test_a_fenced_broker_follows_but_never_leads() -> None:
    image = cluster(broker_record(1), broker_record(2, fenced=True), broker_record(3))
    placed = place(20, 3, image.brokers.values(), Random(1))
    assert all(replicas[0] != 2 and set(replicas) == {1, 2, 3} for replicas in placed)
    changed, _ = made(image, topic("a", 4, 3))
    for partition in changed.topics_by_name["a"].partitions.values():
        assert 2 in partition.replicas and 2 not in partition.isr and partition.leader == partition.isr[0]


def test_a_topic_by_hand_is_made_as_it_is_written() -> None:
    image, answers = made(THREE, topic("a", assignments={1: [3, 1], 0: [2, 3]}, configs={"retention.ms": "9"}))
    assert answers == [(ErrorCode.NONE, None)]
    found = image.topics_by_name["a"].partitions
    assert [found[i].replicas for i in (0, 1)] == [(2, 3), (3, 1)] and found[1].leader == 3
    assert found[0].directories == (Uuid(bytes([200, 2]) * 8), Uuid(bytes([200, 3]) * 8))
    assert image.topic_configs("a") == {"retention.ms": "9"}


MANUAL = "The manual partition assignment includes "
REFUSED: list[tuple[CreatableTopic, ErrorCode, str]] = [
    (topic("a", 0), ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."),
    (topic("a", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0"),
    (topic("a", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR, "only 3 broker(s) are registered"),
    (topic("a", assignments={0: []}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, MANUAL + "an empty replica list."),
    (topic("a", assignments={0: [9]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 9, but no such broker"),
    (topic("a", assignments={0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "the broker 1 more than once."),
    (topic("a", assignments={0: [1], 1: [1, 2]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "not consistent with previous"),
    (topic("a", assignments={1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "consecutive 0-based integer sequence"),
    (topic("no/slash"), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic name is invalid: 'no/slash' contains one or more"),
    (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION, "longer than the max allowed length 249"),
    (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION, "'..' is not allowed"),
    (topic("there"), ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'there' already exists."),
    (topic("my_topic"), ErrorCode.INVALID_TOPIC_EXCEPTION, "Topic 'my_topic' collides with existing topic: my.topic"),
    (topic("a", configs={"no.such": "1"}), ErrorCode.INVALID_CONFIG, "Unknown topic config name: no.such"),
    (topic("a", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG, "retention.ms"),
]


@pytest.mark.parametrize(("wanted", "code", "sentence"), REFUSED)
def test_a_topic_that_cannot_be_is_refused_and_the_others_are_made(
    wanted: CreatableTopic, code: ErrorCode, sentence: str
) -> None:
    image, _ = made(THREE, topic("there"), topic("my.topic"))
    image, answers = made(image, wanted, topic("good"))
    assert answers[0][0] is code and sentence in (answers[0][1] or "")
    assert answers[1] == (ErrorCode.NONE, None) and "good" in image.topics_by_name


def grown(image: MetadataImage, count: int, *assignments: list[int]) -> tuple[MetadataImage, ErrorCode, str]:
    by_hand = [CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments] or None
    request = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=count, assignments=by_hand)])
    outcome = partitions.create_partitions(image, request, random=Random(1))
    result = outcome.response.results[0]
    image = image_of(outcome.records, image) if outcome.records else image
    return image, ErrorCode(result.error_code), result.error_message or ""


def test_partitions_are_added_and_never_taken_away() -> None:
    image, _ = made(THREE, topic("a", 2, 2))
    image, code, _ = grown(image, 5)
    assert code is ErrorCode.NONE and sorted(image.topics_by_name["a"].partitions) == [0, 1, 2, 3, 4]
    assert {len(p.replicas) for p in image.topics_by_name["a"].partitions.values()} == {2}
    assert grown(image, 5)[1:] == (ErrorCode.INVALID_PARTITIONS, "Topic already has 5 partition(s).")
    assert grown(image, 3)[1] is ErrorCode.INVALID_PARTITIONS
    assert grown(image, 7, [1, 2])[1] is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    changed, code, _ = grown(image, 6, [3, 1])
    assert code is ErrorCode.NONE and changed.topics_by_name["a"].partitions[5].replicas == (3, 1)


def altered(image: MetadataImage, kind: int, name: str, *changes: tuple[str, int, str | None]) -> Any:
    listed = [AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=listed)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    outcome = configs.incremental_alter_configs(image, request, config=CONFIG)
    answer = outcome.response.responses[0]
    image = image_of(outcome.records, image) if outcome.records else image
    return image, ErrorCode(answer.error_code), answer.error_message or ""


SET, DELETE, APPEND, SUBTRACT = range(4)


def test_topic_settings_are_set_appended_subtracted_and_deleted() -> None:
    image, _ = made(THREE, topic("a"))
    image, code, _ = altered(image, 2, "a", ("retention.ms", SET, "5"), ("cleanup.policy", APPEND, "compact"))
    assert code is ErrorCode.NONE
    assert image.topic_configs("a") == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    image, _, _ = altered(image, 2, "a", ("cleanup.policy", SUBTRACT, "delete"), ("retention.ms", DELETE, None))
    assert image.topic_configs("a") == {"cleanup.policy": "compact"}
    for change, wanted in (
        (("retention.ms", SET, "x"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", APPEND, "5"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (("no.such", SET, "5"), ErrorCode.INVALID_CONFIG),
    ):
        unchanged, code, message = altered(image, 2, "a", change)
        assert unchanged is image and code is wanted and message
    assert altered(image, 2, "b", ("retention.ms", SET, "5"))[1] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_broker_settings_know_their_level() -> None:
    image, code, _ = altered(THREE, 4, "", ("log.retention.ms", SET, "5"))
    assert code is ErrorCode.NONE and image.default_broker_configs["log.retention.ms"] == "5"
    assert altered(image, 4, "1", ("log.dirs", SET, "/x"))[1] is ErrorCode.INVALID_REQUEST
    assert altered(image, 4, "nine", ("log.retention.ms", SET, "5"))[1] is ErrorCode.INVALID_REQUEST
    _, code, message = altered(image, 4, "1", ("min.insync.replicas", SET, "2"))
    assert (code, message) == (
        ErrorCode.INVALID_CONFIG,
        "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
    )
    _, code, message = altered(image, 4, "", ("min.insync.replicas", DELETE, None))
    assert code is ErrorCode.INVALID_CONFIG and "cannot be removed while ELR is enabled" in message


def registration(broker_id: int, previous_epoch: int = -1) -> Registration:
    endpoints = [Endpoint("PLAINTEXT", "b", 9092, 0)]
    return Registration(broker_id, Uuid.random(), endpoints, [Uuid.random()], previous_epoch=previous_epoch)


def test_a_broker_is_registered_fenced_then_unfenced_then_fenced() -> None:
    image = image_of(brokers.register_broker(THREE, CONFIG, registration(4), 77), THREE)
    assert image.brokers[4].fenced and image.brokers[4].epoch == 77
    image = image_of(brokers.unfence_broker(image, CONFIG, 4), image)
    assert image.brokers[4].is_active and brokers.unfence_broker(image, CONFIG, 4) == []
    assert brokers.begin_controlled_shutdown(image, CONFIG, 4) == []  # it leads nothing
    image = image_of(brokers.fence_broker(image, CONFIG, 4), image)
    assert image.brokers[4].fenced


def test_leadership_moves_when_its_broker_goes_and_waits_when_nobody_is_left() -> None:
    image, _ = made(THREE, topic("a", assignments={0: [1, 2]}), topic("b", assignments={0: [1]}))
    image = image_of(brokers.begin_controlled_shutdown(image, CONFIG, 1), image)
    found = [image.topics_by_name[name].partitions[0] for name in ("a", "b")]
    assert image.brokers[1].in_controlled_shutdown
    assert (found[0].leader, found[0].isr, found[0].leader_epoch) == (2, (2,), 1)
    assert (found[1].leader, found[1].isr, found[1].elr, found[1].last_known_elr) == (-1, (), (1,), (1,))
    image = image_of(brokers.fence_broker(image, CONFIG, 1), image)
    clean = registration(1, previous_epoch=image.brokers[1].epoch)._replace(directories=image.brokers[1].directories)
    for again, recovering in ((clean, 0), (clean._replace(previous_epoch=-1), 1)):
        back = image_of(brokers.register_broker(image, CONFIG, again, 900), image)
        back = image_of(brokers.unfence_broker(back, CONFIG, 1), back)
        partition = back.topics_by_name["b"].partitions[0]
        assert (partition.leader, partition.isr, partition.elr) == (1, (1,), ())
        assert partition.leader_recovery_state == recovering, "an unclean stop may have cost the tail of the log"


def test_a_process_that_died_leaves_one_change_per_partition_and_no_fencing_record() -> None:
    image, _ = made(THREE, topic("a", assignments={0: [1, 2]}), topic("b", assignments={0: [1]}))
    records = brokers.register_broker(image, CONFIG, registration(1), 900)
    assert [type(record).__name__ for record in records] == ["PartitionChangeRecord"] * 2 + ["RegisterBrokerRecord"]


def test_producer_ids_end_with_the_numbers() -> None:
    image = image_of([ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=(1 << 63) - 1 - 999)], THREE)
    with pytest.raises(ApiError, match="exhausted all available producer ids"):
        producer_ids.allocate_block(image, 1, 1)
