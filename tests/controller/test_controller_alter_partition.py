"""AlterPartition, AssignReplicasToDirs: what leaders and brokers report, and what they may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.metadata import broker_record, cluster, image_of, node_config
from support.partitions import TOPIC, directory, only_partition, partition_record, with_partition

from controller.alter_partition import alter_partition
from controller.image import LEADER_RECOVERED, LEADER_RECOVERING, NO_LEADER, MetadataImage
from controller.leadership import Elections
from controller.replica_directories import assign_replicas_to_directories
from protocol.errors import ApiError, ErrorCode
from protocol.messages import assign_replicas_to_dirs as dirs
from protocol.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from protocol.metadata.broker_registration_change_record import BrokerRegistrationChangeRecord
from protocol.metadata.config_record import ConfigRecord
from protocol.metadata.feature_level_record import FeatureLevelRecord
from protocol.metadata.unregister_broker_record import UnregisterBrokerRecord
from protocol.uuids import DIRECTORY_LOST, DIRECTORY_UNASSIGNED, Uuid

CONFIG = node_config(Path("/nowhere"))
FOUR = cluster(*(broker_record(i) for i in (1, 2, 3, 4)))


def request(*isr: int, sender: int = 1, topic_id: Uuid = TOPIC, epochs: bool = True, **fields: Any) -> Any:
    values: dict[str, Any] = {"partition_index": 0, "leader_epoch": 0, "partition_epoch": 0, **fields}
    if epochs:
        states = [BrokerState(broker_id=member, broker_epoch=100 + member) for member in isr]
        part = PartitionData(new_isr_with_epochs=values.pop("states", states), **values)
    else:
        part = PartitionData(new_isr=list(isr), **values)
    return AlterPartitionRequest(
        broker_id=sender, broker_epoch=100 + sender, topics=[TopicData(topic_id=topic_id, partitions=[part])]
    )


def alter(image: MetadataImage, asked: Any, api_version: int = 3) -> tuple[MetadataImage, Any]:
    made = alter_partition(image, asked, config=CONFIG, api_version=api_version)
    answer = made.response.topics[0].partitions[0]
    return (image_of(made.records, image) if made.records else image), answer


@pytest.mark.parametrize("api_version", [2, 3])
def test_an_isr_shrinks_and_grows_and_its_partition_epoch_counts(api_version: int) -> None:
    image = with_partition(FOUR, 1, 2, 3)
    image, answer = alter(image, request(1, 3, epochs=api_version == 3), api_version)
    assert answer.error_code == 0 and answer.isr == [1, 3] and answer.partition_epoch == 1
    assert (answer.leader_id, answer.leader_epoch) == (1, 0)
    assert only_partition(image).isr == (1, 3)
    image, answer = alter(image, request(1, 3, 2, partition_epoch=1, epochs=api_version == 3), api_version)
    assert answer.error_code == 0 and only_partition(image).isr == (1, 3, 2) and answer.partition_epoch == 2


def test_each_partition_needs_as_many_replicas_as_it_has_itself() -> None:
    """A reassignment had left partition 0 on a single broker, so the controller took one replica in sync for enough in
    all partitions of the topic. The leader of partition 1 demanded two, stopped to commit when it was left alone, and
    broker 2, which had everything, was not eligible any more: with broker 1, all would have been lost. The simulation
    of replication found it.
    """
    image = image_of([partition_record(1, 1, 2, 3, isr=[1, 2])], with_partition(FOUR, 4))
    setting = ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value="2")
    image, answer = alter(image_of([setting], image), request(1, partition_index=1))
    assert answer.error_code == 0
    found = image.topics_by_name["t"].partitions[1]
    assert (found.isr, found.elr) == ((1,), (2,))


def test_what_is_so_already_writes_nothing() -> None:
    image = with_partition(FOUR, 1, 2)
    after, answer = alter(image, request(1, 2))
    assert after is image and answer.error_code == 0 and answer.partition_epoch == 0


REFUSED: list[tuple[Any, ErrorCode]] = [
    (request(1, 2, topic_id=Uuid(b"x" * 16)), ErrorCode.UNKNOWN_TOPIC_ID),
    (request(1, 2, partition_index=7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (request(1, 2, leader_epoch=6), ErrorCode.NOT_CONTROLLER),
    (request(1, 2, partition_epoch=9), ErrorCode.NOT_CONTROLLER),
    (request(1, 2, leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH),
    (request(2, 1, sender=2), ErrorCode.INVALID_REQUEST),
    (request(1, 2, partition_epoch=7), ErrorCode.INVALID_UPDATE_VERSION),
    (request(1, 9), ErrorCode.INVALID_REQUEST),
    (request(1, 1), ErrorCode.INVALID_REQUEST),
    (request(2), ErrorCode.INVALID_REQUEST),
    (request(), ErrorCode.INVALID_REQUEST),
    (request(1, 2, leader_recovery_state=LEADER_RECOVERING), ErrorCode.INVALID_REQUEST),
    (request(1, leader_recovery_state=LEADER_RECOVERING), ErrorCode.INVALID_REQUEST),
    (request(1, leader_recovery_state=5), ErrorCode.INVALID_REQUEST),
]


@pytest.mark.parametrize(("asked", "code"), REFUSED)
def test_a_report_in_ignorance_is_refused(asked: Any, code: ErrorCode) -> None:
    for part in asked.topics[0].partitions:  # the present epochs are 5 and 8
        part.leader_epoch = part.leader_epoch or 5
        part.partition_epoch = part.partition_epoch or 8
    image = with_partition(FOUR, 1, 2, leader_epoch=5, partition_epoch=8)
    after, answer = alter(image, asked)
    assert after is image and answer.error_code == code


def test_a_sender_that_was_replaced_is_refused_as_a_whole() -> None:
    asked = request(1, 2)
    asked.broker_epoch = 55
    with pytest.raises(ApiError, match="STALE_BROKER_EPOCH: Expected broker epoch 101, but got broker epoch 55"):
        alter(with_partition(FOUR, 1, 2), asked)


def test_only_brokers_that_are_up_and_the_same_process_may_join() -> None:
    image = with_partition(FOUR, 1, 2, isr=[1])
    for change in (
        BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=102, fenced=1),
        BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=102, in_controlled_shutdown=1),
        UnregisterBrokerRecord(broker_id=2, broker_epoch=102),
    ):
        _, answer = alter(image_of([change], image), request(1, 2))
        assert answer.error_code == ErrorCode.INELIGIBLE_REPLICA
    older = [BrokerState(broker_id=1, broker_epoch=101), BrokerState(broker_id=2, broker_epoch=44)]
    assert alter(image, request(states=older))[1].error_code == ErrorCode.INELIGIBLE_REPLICA
    older[1].broker_epoch = -1  # the leader does not know the epoch: taken as in version 2
    assert alter(image, request(states=older))[1].error_code == 0


def test_a_leader_reports_the_end_of_its_recovery() -> None:
    image = with_partition(FOUR, 1, 2, isr=[1], leader_recovery_state=LEADER_RECOVERING)
    image, answer = alter(image, request(1, leader_recovery_state=LEADER_RECOVERED))
    assert answer.error_code == 0 and answer.leader_recovery_state == LEADER_RECOVERED
    assert only_partition(image).leader_recovery_state == LEADER_RECOVERED


def test_the_last_new_replica_in_sync_ends_a_reassignment() -> None:
    image = with_partition(FOUR, 1, 3, 2, isr=[1, 2], adding_replicas=[3], removing_replicas=[2])
    image, answer = alter(image, request(1, 2, 3))
    partition = only_partition(image)
    assert answer.error_code == 0 and answer.isr == [1, 3] and answer.leader_epoch == 1
    assert partition.replicas == (1, 3) and partition.adding_replicas == partition.removing_replicas == ()
    assert partition.directories == (directory(1), directory(3))


def test_a_leader_that_moves_away_learns_that_another_was_elected() -> None:
    image = with_partition(FOUR, 2, 3, 1, isr=[1], leader=1, adding_replicas=[2, 3], removing_replicas=[1])
    image, answer = alter(image, request(1, 2, 3))
    assert answer.error_code == ErrorCode.NEW_LEADER_ELECTED
    assert only_partition(image).leader == 2 and only_partition(image).replicas == (2, 3)


def assign(image: MetadataImage, broker_id: int, directory_id: Uuid, *partitions: tuple[Uuid, int]) -> Any:
    asked = dirs.AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=100 + broker_id,
        directories=[
            dirs.DirectoryData(
                id=directory_id,
                topics=[
                    dirs.TopicData(topic_id=topic, partitions=[dirs.PartitionData(partition_index=index)])
                    for topic, index in partitions
                ],
            )
        ],
    )
    made = assign_replicas_to_directories(image, asked, config=CONFIG)
    codes = [topic.partitions[0].error_code for topic in made.response.directories[0].topics]
    return (image_of(made.records, image) if made.records else image), codes


def test_a_broker_tells_where_its_replicas_are() -> None:
    here, there = Uuid(b"h" * 16), Uuid(b"i" * 16)
    image = cluster(broker_record(1, log_dirs=[here, there]), broker_record(2))
    image = with_partition(image, 1, 2, directories=[DIRECTORY_UNASSIGNED, directory(2)])
    unknown = Uuid(b"x" * 16)
    image, codes = assign(image, 1, there, (TOPIC, 0), (unknown, 0), (TOPIC, 3))
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert only_partition(image).directories == (there, directory(2)) and only_partition(image).leader == 1
    settled = image
    assert assign(image, 1, there, (TOPIC, 0)) == (settled, [0])
    with_third = image_of([broker_record(3)], image)
    assert assign(with_third, 3, directory(3), (TOPIC, 0))[1] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_a_replica_that_begins_anew_on_another_disk_is_not_taken_back() -> None:
    """Broker 1 was the last leader; it comes back with an empty disk, and broker 2 has some of what there was."""
    new = Uuid(b"n" * 16)
    replaced = cluster(broker_record(1, log_dirs=[new]), broker_record(2))
    gone = {"leader": -1, "isr": [], "last_known_elr": [1]}
    for elr in ([], [1]):
        image = with_partition(replaced, 1, 2, **gone, eligible_leader_replicas=elr)
        assert Elections(image, CONFIG).on_unfenced() == [], "where its replica was is gone"
        image, _ = assign(image, 1, new, (TOPIC, 0))
        found = only_partition(image)
        assert (found.leader, found.elr, found.last_known_elr) == (-1, (), ())
        assert found.directory_of(1) == new
        assert Elections(image, CONFIG).on_unfenced() == []


def test_a_replica_that_moves_between_disks_stays_eligible() -> None:
    other = Uuid(b"o" * 16)
    image = cluster(broker_record(1, log_dirs=[directory(1), other]), broker_record(2, fenced=True))
    image = with_partition(image, 1, 2, leader=-1, isr=[], eligible_leader_replicas=[2, 1], last_known_elr=[1])
    image, _ = assign(image, 1, other, (TOPIC, 0))
    found = only_partition(image)
    assert (found.leader, found.isr, found.elr) == (1, (1,), (2,))


def test_who_is_in_sync_leads_as_soon_as_its_directory_is_known() -> None:
    """Broker 1 came back with a new disk, copied everything and was the only one in sync before it had said where its
    replica was. That made a reassignment complete, which took the partition from its leader, and nobody led it: not
    broker 1, as its replica was thought to be on the old disk. When it said better, it was the old disk that was looked
    at once more, and the partition waited for whichever broker came back next. The simulation of replication found it.
    """
    new = Uuid(b"n" * 16)
    image = cluster(broker_record(1, log_dirs=[new]), broker_record(2))
    image = with_partition(image, 1, isr=[1], leader=-1, last_known_elr=[2])
    assert Elections(image, CONFIG).on_unfenced() == [], "where its replica was is gone"
    image, _ = assign(image, 1, new, (TOPIC, 0))
    found = only_partition(image)
    assert (found.leader, found.isr, found.last_known_elr) == (1, (1,), ())


def test_a_replica_in_a_directory_that_failed_is_out_of_sync() -> None:
    image = with_partition(cluster(broker_record(1), broker_record(2)), 1, 2)
    for lost in (DIRECTORY_LOST, Uuid(b"g" * 16)):
        after, codes = assign(image, 1, lost, (TOPIC, 0))
        assert codes == [0] and only_partition(after).leader == 2 and only_partition(after).isr == (2,)
        assert only_partition(after).directories[0] == lost
    alone = with_partition(cluster(broker_record(1)), 1)
    after, _ = assign(alone, 1, DIRECTORY_LOST, (TOPIC, 0))
    assert only_partition(after).leader == NO_LEADER and only_partition(after).elr == (1,)


def test_directories_are_unknown_to_older_clusters() -> None:
    old = image_of([FeatureLevelRecord(name="metadata.version", feature_level=16)], FOUR)
    with pytest.raises(ApiError, match="UNSUPPORTED_VERSION: Directory assignment is not supported yet"):
        assign(old, 1, directory(1))
