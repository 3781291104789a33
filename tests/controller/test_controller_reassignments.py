"""ElectLeaders, reassignments, and the elections that nobody asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.metadata import broker_record, cluster, image_of, node_config
from support.partitions import TOPIC, directory, only_partition, partition_record, with_partition

from controller.elections import PREFERRED, UNCLEAN, balance_leaders, elect_leaders, elect_unclean_leaders
from controller.image import LEADER_RECOVERING, NO_LEADER, MetadataImage
from controller.reassignments import alter_partition_reassignments, list_partition_reassignments
from protocol.errors import ApiError, ErrorCode
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from protocol.metadata.broker_registration_change_record import BrokerRegistrationChangeRecord
from protocol.metadata.config_record import ConfigRecord

CONFIG = node_config(Path("/nowhere"))
FIVE = cluster(*(broker_record(i) for i in (1, 2, 3, 4, 5)))
SIX = cluster(*(broker_record(i) for i in (1, 2, 3, 4, 5, 6)))
ALLOWED = ConfigRecord(resource_type=2, resource_name="t", name="unclean.leader.election.enable", value="true")


def fenced(image: MetadataImage, *broker_ids: int) -> MetadataImage:
    """Only the registrations change: what becomes of partitions is the test's business."""
    return image_of(
        [BrokerRegistrationChangeRecord(broker_id=i, broker_epoch=100 + i, fenced=1) for i in broker_ids], image
    )


def elect(image: MetadataImage, kind: int, *partitions: tuple[str, int]) -> tuple[MetadataImage, list[Any]]:
    wanted = [TopicPartitions(topic=name, partitions=[index]) for name, index in partitions] or None
    made = elect_leaders(image, ElectLeadersRequest(election_type=kind, topic_partitions=wanted), config=CONFIG)
    answers = [
        (result.topic, part.partition_id, ErrorCode(part.error_code), part.error_message)
        for result in made.response.replica_election_results
        for part in result.partition_result
    ]
    return (image_of(made.records, image) if made.records else image), answers


def test_the_preferred_replica_takes_over() -> None:
    image = with_partition(FIVE, 1, 2, leader=2, leader_epoch=3)
    image, answers = elect(image, PREFERRED, ("t", 0))
    assert answers == [("t", 0, ErrorCode.NONE, None)]
    assert only_partition(image).leader == 1 and only_partition(image).leader_epoch == 4
    assert elect(image, PREFERRED, ("t", 0))[1] == [("t", 0, ErrorCode.ELECTION_NOT_NEEDED, None)]


def test_elections_that_cannot_be_say_why() -> None:
    image = with_partition(FIVE, 1, 2, isr=[2], leader=2)
    after, answers = elect(image, PREFERRED, ("t", 0), ("t", 9), ("nope", 0))
    assert after is image and answers == [
        ("t", 0, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, None),
        ("t", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as t-9"),
        ("nope", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as nope"),
    ]
    gone = fenced(with_partition(FIVE, 1, 2, isr=[], leader=NO_LEADER, last_known_elr=[1]), 1, 2)
    assert elect(gone, UNCLEAN, ("t", 0))[1] == [("t", 0, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, None)]
    assert elect(image, UNCLEAN, ("t", 0))[1] == [("t", 0, ErrorCode.ELECTION_NOT_NEEDED, None)]
    with pytest.raises(ApiError, match="INVALID_REQUEST: Unknown election type 7"):
        elect(image, 7, ("t", 0))


def test_an_unclean_election_takes_who_is_up_and_marks_the_loss() -> None:
    image = fenced(with_partition(FIVE, 1, 2, isr=[], leader=NO_LEADER, eligible_leader_replicas=[1]), 1)
    image, answers = elect(image, UNCLEAN, ("t", 0))
    partition = only_partition(image)
    assert answers[0][2] is ErrorCode.NONE and partition.leader == 2 and partition.isr == (2,)
    assert partition.leader_recovery_state == LEADER_RECOVERING and partition.elr == ()


def test_without_a_list_all_partitions_are_looked_at_and_only_elections_answered() -> None:
    image = image_of([partition_record(1, 2, 1, leader=1), partition_record(2, 3)], with_partition(FIVE, 1, 2))
    image, answers = elect(image, PREFERRED)
    assert answers == [("t", 1, ErrorCode.NONE, None)] and image.topics_by_name["t"].partitions[1].leader == 2


def test_balancing_brings_preferred_leaders_back_in_steps() -> None:
    parts = [partition_record(i, 1, 2, leader=2) for i in range(1, 5)]
    image = image_of(parts, with_partition(FIVE, 1, 2, isr=[2], leader=2))
    step = balance_leaders(image, config=CONFIG, limit=3)
    assert len(step.records) == 3 and step.response
    image = image_of(step.records, image)
    step = balance_leaders(image, config=CONFIG, limit=3)
    assert len(step.records) == 1 and not step.response
    image = image_of(step.records, image)
    leaders = [part.leader for part in image.topics_by_name["t"].partitions.values()]
    assert leaders == [2, 1, 1, 1, 1]  # the preferred replica of partition 0 is not in sync
    assert balance_leaders(image, config=CONFIG).records == []


def test_unclean_elections_come_by_themselves_only_where_the_topic_says_so() -> None:
    image = with_partition(FIVE, 1, 2, isr=[], leader=NO_LEADER)
    assert elect_unclean_leaders(image, config=CONFIG).records == []
    allowed = image_of([ALLOWED], image)
    image = image_of(elect_unclean_leaders(allowed, config=CONFIG).records, allowed)
    assert only_partition(image).leader == 1 and only_partition(image).leader_recovery_state == LEADER_RECOVERING


def reassign(
    image: MetadataImage, replicas: list[int] | None, *, topic: str = "t", index: int = 0, resize: bool = True
) -> tuple[MetadataImage, ErrorCode, str | None]:
    wanted = ReassignableTopic(name=topic, partitions=[ReassignablePartition(partition_index=index, replicas=replicas)])
    request = AlterPartitionReassignmentsRequest(topics=[wanted], allow_replication_factor_change=resize)
    made = alter_partition_reassignments(image, request, config=CONFIG)
    assert made.response.error_code == 0 and made.response.allow_replication_factor_change is resize
    part = made.response.responses[0].partitions[0]
    after = image_of(made.records, image) if made.records else image
    return after, ErrorCode(part.error_code), part.error_message


def moving(image: MetadataImage, *topics: str) -> list[tuple[list[int], list[int], list[int]]]:
    asked = [ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 1]) for name in topics] or None
    answer = list_partition_reassignments(image, ListPartitionReassignmentsRequest(topics=asked))
    return [
        (part.replicas, part.adding_replicas, part.removing_replicas) for t in answer.topics for part in t.partitions
    ]


def test_a_reassignment_adds_first_and_can_be_cancelled() -> None:
    start = with_partition(FIVE, 1, 2, 3)
    image, code, _ = reassign(start, [4, 5, 1])
    partition = only_partition(image)
    assert code is ErrorCode.NONE and partition.replicas == (4, 5, 1, 2, 3)
    assert (partition.adding_replicas, partition.removing_replicas) == ((4, 5), (2, 3))
    assert partition.directories == tuple(map(directory, (4, 5, 1, 2, 3)))
    assert partition.isr == (1, 2, 3) and partition.leader == 1 and partition.leader_epoch == 0
    assert moving(image) == moving(image, "t", "nope") == [([4, 5, 1, 2, 3], [4, 5], [2, 3])]
    image, code, _ = reassign(image, None)
    partition = only_partition(image)
    assert code is ErrorCode.NONE and partition.replicas == (1, 2, 3) and partition.isr == (1, 2, 3)
    assert partition.leader_epoch == 1 and moving(image) == []  # replicas went away: everyone must notice


def test_what_needs_no_new_replica_is_done_at_once() -> None:
    image = with_partition(FIVE, 1, 2, 3)
    image, code, _ = reassign(image, [2, 1])
    partition = only_partition(image)
    assert code is ErrorCode.NONE and partition.replicas == (2, 1) and partition.isr == (1, 2)
    assert partition.leader == 1 and moving(image) == []
    same, code, _ = reassign(image, [2, 1])
    assert same is image and code is ErrorCode.NONE


def test_a_smaller_replica_set_waits_for_all_that_stay() -> None:
    image = with_partition(FIVE, 1, 2, 3, isr=[1, 3])
    image, _, _ = reassign(image, [1, 2])
    assert moving(image) == [([1, 2, 3], [], [3])]


REFUSED: list[tuple[Any, ErrorCode, str | None]] = [
    ({"replicas": [1], "topic": "nope"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find a topic named nope."),
    ({"replicas": [1], "index": 4}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Unable to find partition t:4."),
    ({"replicas": None}, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None),
    (
        {"replicas": []},
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "The manual partition assignment includes an empty replica list.",
    ),
    (
        {"replicas": [9]},
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "The manual partition assignment includes broker 9, but no such broker is registered.",
    ),
    (
        {"replicas": [1], "resize": False},
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "The replication factor is changed from 2 to 1",
    ),
]


@pytest.mark.parametrize(("asked", "code", "message"), REFUSED)
def test_a_reassignment_that_cannot_be_is_refused(asked: Any, code: ErrorCode, message: str | None) -> None:
    image = with_partition(FIVE, 1, 2)
    assert reassign(image, **asked) == (image, code, message)


def test_a_move_under_way_counts_by_its_target() -> None:
    image, _, _ = reassign(with_partition(FIVE, 1, 2), [3, 4])
    assert reassign(image, [4, 5], resize=False)[1] is ErrorCode.NONE
    assert reassign(image, [4, 5, 1], resize=False)[2] == "The replication factor is changed from 2 to 3"


def test_a_plan_replaces_the_one_before_it_as_a_whole() -> None:
    """From the replicas of the moment, a replica would be both added and removed, and the move never end."""
    first, _, _ = reassign(with_partition(FIVE, 1, 2, isr=[1]), [1, 4])
    assert moving(first) == [([1, 4, 2], [4], [2])]
    assert only_partition(reassign(first, [1, 2])[0]).replicas == (1, 2) and moving(reassign(first, [1, 2])[0]) == []
    assert moving(reassign(first, [4, 5])[0]) == [([4, 5, 1, 2], [4, 5], [1, 2])]
    alone, _, _ = reassign(first, [1])
    assert only_partition(alone).replicas == (1,) and moving(alone) == []
    back, _, _ = reassign(reassign(with_partition(FIVE, 1, 2, isr=[1]), [2])[0], [1, 2])
    assert only_partition(back).replicas == (1, 2) and moving(back) == []


def under_way(isr: list[int], leader: int, **fields: Any) -> MetadataImage:
    """From 1, 2, 3 to 4, 5, 6, with the topic's first new replicas in sync already."""
    return with_partition(
        SIX, 4, 5, 6, 1, 2, 3, isr=isr, leader=leader, adding_replicas=[4, 5, 6], removing_replicas=[1, 2, 3], **fields
    )


def test_a_cancelled_replacement_brings_back_the_original_replicas() -> None:
    """What only the first plan wanted used to stay: three replicas had become five."""
    start = with_partition(SIX, 1, 2, 3)
    image, _, _ = reassign(start, [4, 5, 6])
    assert moving(image) == [([4, 5, 6, 1, 2, 3], [4, 5, 6], [1, 2, 3])]
    image, code, _ = reassign(image, [1, 2, 4])
    assert code is ErrorCode.NONE and moving(image) == [([1, 2, 4, 3], [4], [3])]
    partition = only_partition(image)
    assert (partition.isr, partition.leader, partition.leader_epoch) == ((1, 2, 3), 1, 1)  # 5 and 6 must notice
    assert partition.directories == tuple(map(directory, (1, 2, 4, 3)))
    image, code, _ = reassign(image, None)
    assert code is ErrorCode.NONE and moving(image) == []
    assert only_partition(image).replicas == (1, 2, 3) and only_partition(image).isr == (1, 2, 3)


def test_a_replacement_drops_replicas_that_are_in_sync_already() -> None:
    image, code, _ = reassign(under_way([1, 2, 3, 5], 1), [1, 2, 4])
    partition = only_partition(image)
    assert code is ErrorCode.NONE and partition.replicas == (1, 2, 4, 3) and partition.isr == (1, 2, 3)
    assert partition.leader == 1 and partition.leader_epoch == 1
    image, code, _ = reassign(under_way([1, 2, 5], 5), [1, 2, 4])
    partition = only_partition(image)
    assert code is ErrorCode.NONE and partition.isr == (1, 2)
    assert partition.leader == 1 and partition.leader_epoch == 1 and partition.leader_recovery_state == 0


def test_a_replacement_keeps_who_alone_has_the_records() -> None:
    """Whether they are the whole ISR, all that is eligible, or the last known leader."""
    message = (
        "Unable to replace the reassignment of t:0: its replicas 5, 6 would be dropped at once, and no other has all "
        "records."
    )
    for image in (
        under_way([5], 5),
        under_way([5, 6], 5),
        under_way([], NO_LEADER, eligible_leader_replicas=[5], last_known_elr=[1]),
        under_way([], NO_LEADER, last_known_elr=[6]),
    ):
        assert reassign(image, [1, 2, 4]) == (image, ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        assert reassign(image_of([ALLOWED], image), [1, 2, 4])[1:] == (ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    kept, code, _ = reassign(under_way([5], 5), [1, 5])
    assert code is ErrorCode.NONE and moving(kept) == [([1, 5, 2, 3], [5], [2, 3])]
    image = under_way([], NO_LEADER, eligible_leader_replicas=[1], last_known_elr=[6])
    partition = only_partition(reassign(fenced(image, 1), [1, 2, 4])[0])
    assert partition.elr == (1,) and 6 not in partition.last_known_elr, "it begins with nothing, should it come back"


def test_a_cancellation_that_would_lose_records_is_refused() -> None:
    image = with_partition(FIVE, 3, 1, isr=[3], leader=3, adding_replicas=[3], removing_replicas=[1])
    after, code, message = reassign(image, None)
    assert after is image and code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert message == (
        "Unable to revert partition assignment for t:0 because it would require an unclean leader election."
    )
    image, code, _ = reassign(image_of([ALLOWED], image), None)
    assert code is ErrorCode.NONE and only_partition(image).leader == 1 and only_partition(image).replicas == (1,)
    lost = with_partition(FIVE, 3, isr=[3], adding_replicas=[3])
    assert reassign(lost, None)[2] == "Invalid replica assignment: addingReplicas contains all replicas."
    assert TOPIC in lost.topics_by_id
