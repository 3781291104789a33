"""The image: records applied in any portions give the same image, and an image's own records give it again."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.metadata import content, image_of
from support.metadata_history import history

from controller.delta import ImageBuilder, MetadataError, apply_records
from controller.image import EMPTY_IMAGE, RESOURCE_TOPIC, ImageDelta, MetadataImage
from controller.snapshot_records import image_records
from controller.transactions import TransactionBuffer
from protocol.metadata import RECORD_NAMES, record_class
from protocol.metadata.abort_transaction_record import AbortTransactionRecord
from protocol.metadata.begin_transaction_record import BeginTransactionRecord
from protocol.metadata.broker_registration_change_record import BrokerRegistrationChangeRecord
from protocol.metadata.config_record import ConfigRecord
from protocol.metadata.end_transaction_record import EndTransactionRecord
from protocol.metadata.no_op_record import NoOpRecord
from protocol.metadata.partition_change_record import PartitionChangeRecord
from protocol.metadata.partition_record import PartitionRecord
from protocol.metadata.remove_topic_record import RemoveTopicRecord
from protocol.metadata.topic_record import TopicRecord
from protocol.schema import Message
from protocol.uuids import DIRECTORY_UNASSIGNED, Uuid

histories = st.builds(lambda seed, length: history(Random(seed), length), st.integers(0, 1 << 32), st.integers(1, 120))


def in_portions(records: list[Message], cuts: list[int]) -> tuple[MetadataImage, list[ImageDelta]]:
    image, deltas = EMPTY_IMAGE, []
    bounds = sorted({0, len(records), *(cut % (len(records) + 1) for cut in cuts)})
    for start, end in itertools.pairwise(bounds):
        image, delta = apply_records(image, records[start:end], offset=end - 1, epoch=1)
        deltas.append(delta)
    return image, deltas


@given(histories, st.lists(st.integers(0, 1000), max_size=12))
@settings(max_examples=150, deadline=None)
def test_any_split_of_the_records_gives_the_same_image(records: list[Message], cuts: list[int]) -> None:
    at_once, _ = apply_records(EMPTY_IMAGE, records, offset=len(records) - 1, epoch=1)
    step_by_step, _ = in_portions(records, cuts)
    assert step_by_step == at_once
    assert {t.name: t for t in at_once.topics_by_id.values()} == at_once.topics_by_name


@given(histories)
@settings(max_examples=150, deadline=None)
def test_the_records_of_an_image_give_it_again(records: list[Message]) -> None:
    image, _ = apply_records(EMPTY_IMAGE, records, offset=50, epoch=3, timestamp=9)
    again, _ = apply_records(EMPTY_IMAGE, image_records(image), offset=50, epoch=3, timestamp=9)
    assert again == image


@given(histories, histories, st.lists(st.integers(0, 1000), max_size=6))
@settings(max_examples=60, deadline=None)
def test_an_image_never_changes_and_a_delta_names_what_did(
    first: list[Message], second: list[Message], cuts: list[int]
) -> None:
    """Two histories have different ids for the same topic names, so the second one starts from its own beginning."""
    image, _ = apply_records(EMPTY_IMAGE, second, offset=1, epoch=1)
    before = content(image)
    follow_up = [RemoveTopicRecord(topic_id=topic_id) for topic_id in list(image.topics_by_id)[::2]]
    changed, delta = apply_records(image, follow_up, offset=2, epoch=1)
    assert content(image) == before
    assert {t.name for t in delta.deleted_topics} == set(image.topics_by_name) - set(changed.topics_by_name)
    assert not any(resource == (RESOURCE_TOPIC, t.name) for t in delta.deleted_topics for resource in changed.configs)
    built, deltas = in_portions(first, cuts)
    touched = {name for step in deltas for name in step.changed_topics}
    assert set(built.topics_by_name) <= touched


@given(histories)
@settings(max_examples=60, deadline=None)
def test_partitions_that_changed_are_in_the_delta_and_no_others(records: list[Message]) -> None:
    half = len(records) // 2
    before, _ = apply_records(EMPTY_IMAGE, records[:half], offset=half, epoch=1)
    after, delta = apply_records(before, records[half:], offset=len(records), epoch=1)
    for name, topic in after.topics_by_name.items():
        old = before.topics_by_name.get(name)
        same_topic = old is not None and old.topic_id == topic.topic_id
        differing = {
            partition_id
            for partition_id, partition in topic.partitions.items()
            if not same_topic or old is None or old.partitions.get(partition_id) != partition
        }
        assert differing <= delta.changed_partitions.get(name, set())
        if not delta.changed_partitions.get(name) and same_topic:
            assert topic is old or topic == old


def test_every_record_of_kafka_has_its_way_into_the_image() -> None:
    """A type without one would stop a node that joins a cluster of Apache Kafka."""
    unknown = []
    for record_type in RECORD_NAMES:
        try:
            ImageBuilder(EMPTY_IMAGE).replay(record_class(record_type)())
        except MetadataError as error:
            if "cannot apply" in str(error):
                unknown.append(record_type)
    assert unknown == []


A_TOPIC = Uuid(b"a" * 16)


def one_partition(**fields: object) -> list[Message]:
    record = PartitionRecord(
        partition_id=0, topic_id=A_TOPIC, replicas=[1, 2], isr=[1, 2], leader=1, leader_epoch=4, partition_epoch=9
    )
    for name, value in fields.items():
        setattr(record, name, value)
    return [TopicRecord(name="a", topic_id=A_TOPIC), record]


def test_a_partition_change_carries_only_what_differs() -> None:
    image = image_of(one_partition(directories=[Uuid(b"1" * 16), Uuid(b"2" * 16)]))
    image = image_of([PartitionChangeRecord(partition_id=0, topic_id=A_TOPIC, isr=[2])], image)
    partition = image.topics_by_name["a"].partitions[0]
    assert (partition.isr, partition.leader, partition.leader_epoch, partition.partition_epoch) == ((2,), 1, 4, 10)
    image = image_of([PartitionChangeRecord(partition_id=0, topic_id=A_TOPIC, leader=2)], image)
    partition = image.topics_by_name["a"].partitions[0]
    assert (partition.isr, partition.leader, partition.leader_epoch, partition.partition_epoch) == ((2,), 2, 5, 11)
    assert partition.directory_of(2) == Uuid(b"2" * 16)
    assert partition.directory_of(7) == DIRECTORY_UNASSIGNED


def test_naming_the_same_leader_again_raises_its_epoch() -> None:
    image = image_of([*one_partition(), PartitionChangeRecord(partition_id=0, topic_id=A_TOPIC, leader=1)])
    assert image.topics_by_name["a"].partitions[0].leader_epoch == 5


def test_a_topic_deleted_and_made_again_in_one_step_is_both() -> None:
    image = image_of([*one_partition(), ConfigRecord(resource_type=2, resource_name="a", name="x", value="1")])
    again = Uuid(b"b" * 16)
    records = [RemoveTopicRecord(topic_id=A_TOPIC), TopicRecord(name="a", topic_id=again)]
    changed, delta = apply_records(image, records, offset=9, epoch=1)
    assert [topic.topic_id for topic in delta.deleted_topics] == [A_TOPIC]
    assert delta.changed_topics == delta.created_topics == {"a"}
    assert changed.topics_by_name["a"].topic_id == again and changed.topic_configs("a") == {}


def test_a_topic_made_and_deleted_in_one_step_was_never_there() -> None:
    image, delta = apply_records(
        EMPTY_IMAGE, [*one_partition(), RemoveTopicRecord(topic_id=A_TOPIC)], offset=3, epoch=1
    )
    assert not image.topics_by_id and delta.is_empty


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        (PartitionRecord(topic_id=A_TOPIC), "topic id .* does not exist"),
        (PartitionChangeRecord(topic_id=A_TOPIC), "topic id .* does not exist"),
        (RemoveTopicRecord(topic_id=A_TOPIC), "topic id .* does not exist"),
        (BrokerRegistrationChangeRecord(broker_id=5, broker_epoch=1), "broker 5, which is not registered"),
    ],
)
def test_a_record_that_contradicts_the_image_is_refused(record: Message, complaint: str) -> None:
    with pytest.raises(MetadataError, match=complaint):
        apply_records(EMPTY_IMAGE, [record], offset=0, epoch=0)


def test_noop_records_move_the_offset_and_nothing_else() -> None:
    before = image_of(one_partition())
    after, delta = apply_records(before, [NoOpRecord()], offset=77, epoch=2)
    assert delta.is_empty and (after.offset, after.epoch, after.features.epoch) == (77, 2, 77)
    assert after.topics_by_name is before.topics_by_name


def test_a_transaction_is_seen_as_a_whole_or_not_at_all() -> None:
    buffer = TransactionBuffer()
    topic = TopicRecord(name="a", topic_id=A_TOPIC)
    assert buffer.feed([NoOpRecord(), BeginTransactionRecord(), topic]) == [NoOpRecord()]
    assert buffer.in_transaction
    assert buffer.feed([AbortTransactionRecord()]) == []
    assert buffer.feed([BeginTransactionRecord(), topic]) == []
    assert buffer.feed([EndTransactionRecord(), NoOpRecord()]) == [topic, NoOpRecord()]
    with pytest.raises(MetadataError, match="did not begin"):
        buffer.feed([EndTransactionRecord()])
    with pytest.raises(MetadataError, match="inside a transaction"):
        buffer.feed([BeginTransactionRecord(), BeginTransactionRecord()])
