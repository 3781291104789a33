"""ConsumerGroupHeartbeat: joining, reconciling, fencing, leaving, and the records of each."""

from __future__ import annotations

from typing import Any

import pytest
from support.consumer_groups import GROUP, Coordinator, assigned
from support.group_images import topic_id_of, topic_image, with_topic, without_topic

from broker.coordinator.group.config import GroupConfig
from broker.coordinator.group.consumer.member import MemberState
from protocol.errors import ErrorCode

T = topic_id_of("t")
FIRST = 2
"""The epoch of a group with its first member: a group without members is at epoch 1."""


def test_the_first_member_gets_all() -> None:
    coordinator = Coordinator()
    answer = coordinator.join("a")
    assert (answer.error_code, answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == (
        0,
        "a",
        FIRST,
        5000,
    )
    assert assigned(answer) == {T: [0, 1, 2]}
    assert coordinator.group.state_name() == "Stable"
    assert coordinator.written() == [
        "MemberMetadata", "Metadata", "TargetAssignmentMember", "TargetAssignmentMetadata", "CurrentMemberAssignment",
    ]  # fmt: skip


def test_a_heartbeat_without_news_writes_nothing_and_tells_no_assignment() -> None:
    coordinator = Coordinator()
    coordinator.join("a")
    coordinator.written()
    answer = coordinator.heartbeat("a", FIRST, {"t": [0, 1, 2]})
    assert (answer.member_epoch, answer.assignment) == (FIRST, None)
    assert coordinator.written() == []
    full = coordinator.heartbeat(
        "a", FIRST, {"t": [0, 1, 2]}, rebalance_timeout_ms=30_000, subscribed_topic_names=["t"]
    )
    assert assigned(full) == {T: [0, 1, 2]}


def test_a_partition_changes_hands_only_after_it_was_given_up() -> None:
    coordinator = Coordinator({"t": 2})
    coordinator.join("a")
    joined = coordinator.join("b")
    assert (joined.member_epoch, assigned(joined)) == (FIRST + 1, {})
    assert coordinator.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    told = coordinator.heartbeat("a", FIRST, {"t": [0, 1]})
    (kept,) = assigned(told)[T]  # type: ignore[index]
    assert told.member_epoch == FIRST
    assert coordinator.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert coordinator.heartbeat("b", FIRST + 1, {}).assignment is None
    assert coordinator.group.state_name() == "Reconciling"
    assert coordinator.heartbeat("a", FIRST, {"t": [kept]}).member_epoch == FIRST + 1
    assert assigned(coordinator.heartbeat("b", FIRST + 1, {})) == {T: [1 - kept]}
    assert coordinator.group.state_name() == "Stable"


def test_a_member_that_does_not_give_up_in_time_is_fenced() -> None:
    coordinator = Coordinator({"t": 2})
    coordinator.join("a")
    coordinator.join("b")
    coordinator.heartbeat("a", FIRST, {"t": [0, 1]})
    for _ in range(6):
        coordinator.pass_time(5_000)
        coordinator.heartbeat("a", FIRST)
        coordinator.heartbeat("b", FIRST + 1, {})
    assert "a" not in coordinator.group.members
    assert set(coordinator.group.members["b"].assigned[T]) == {0, 1}
    assert coordinator.heartbeat("a", FIRST).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_lost_answer_is_forgiven_if_the_member_owns_no_more_than_it_was_given() -> None:
    coordinator = Coordinator({"t": 2})
    coordinator.settled("a", "b")
    member = coordinator.group.members["a"]
    previous, epoch = member.previous_member_epoch, member.member_epoch
    assert previous < epoch
    owned = {"t": sorted(member.assigned[T])}
    assert coordinator.heartbeat("a", previous, owned).member_epoch == epoch
    for wrong in ({"t": [0, 1]}, None):
        assert coordinator.heartbeat("a", previous, wrong).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    newer = coordinator.heartbeat("a", epoch + 1, owned)
    assert newer.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert f"greater member epoch ({epoch + 1})" in newer.error_message


def test_unknown_members_and_groups() -> None:
    coordinator = Coordinator()
    absent = coordinator.heartbeat("a", 1)
    assert (absent.error_code, absent.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Consumer group g not found.")
    coordinator.join("a")
    unknown = coordinator.heartbeat("b", 1)
    assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert unknown.error_message == "Member b is not a member of group g."
    assert coordinator.heartbeat("b", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
    ],
)
def test_invalid_requests(changes: dict[str, Any], message: str) -> None:
    answer = Coordinator().join(**{"member_id": "a", **changes})
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, message)


def test_version_0_may_join_without_an_id() -> None:
    coordinator = Coordinator()
    assert coordinator.join("", version=0).member_id == "id1"
    assert coordinator.heartbeat("", 1, version=0).error_code == ErrorCode.INVALID_REQUEST


def test_an_unknown_assignor_is_refused_and_the_majority_chooses() -> None:
    coordinator = Coordinator()
    refused = coordinator.join("a", server_assignor="sticky")
    assert refused.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert refused.error_message == "ServerAssignor sticky is not supported. Supported assignors: uniform, range."
    coordinator.join("a", server_assignor="range")
    coordinator.join("b")
    assert coordinator.core.consumer_group_describe([GROUP])[0].assignor_name == "range"


def test_a_full_group_takes_no_more() -> None:
    coordinator = Coordinator(config=GroupConfig(consumer_max_size=1))
    coordinator.join("a")
    assert coordinator.join("b").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert coordinator.join("a").error_code == ErrorCode.NONE


def test_leaving_makes_a_new_epoch_and_the_last_one_leaves_an_empty_group() -> None:
    coordinator = Coordinator()
    coordinator.settled("a", "b")
    coordinator.written()
    answer = coordinator.heartbeat("b", -1)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "b", -1)
    assert coordinator.written() == [
        "-CurrentMemberAssignment", "-TargetAssignmentMember", "-MemberMetadata", "Metadata",
    ]  # fmt: skip
    assert coordinator.group.state_name() == "Assigning"
    epoch = coordinator.group.members["a"].member_epoch
    assert assigned(coordinator.heartbeat("a", epoch)) == {T: [0, 1, 2]}
    coordinator.heartbeat("a", -1)
    assert coordinator.group.state_name() == "Empty"
    assert not coordinator.core.shard.timers.next_deadline_ms or coordinator.group.is_empty()


def test_the_session_ends_when_it_should() -> None:
    coordinator = Coordinator(group_configs={GROUP: {"consumer.session.timeout.ms": "50000"}})
    coordinator.join("a")
    coordinator.pass_time(49_999)
    assert "a" in coordinator.group.members
    coordinator.pass_time(1)
    assert coordinator.group.is_empty()


def test_group_configs_are_held_within_the_brokers_limits() -> None:
    settings = {"consumer.heartbeat.interval.ms": "1", "consumer.session.timeout.ms": "999999"}
    coordinator = Coordinator(group_configs={GROUP: settings})
    assert coordinator.join("a").heartbeat_interval_ms == 5_000
    coordinator.pass_time(60_000)
    assert coordinator.group.is_empty()


def test_the_assignment_waits_for_its_interval() -> None:
    coordinator = Coordinator(config=GroupConfig())
    coordinator.join("a")
    coordinator.pass_time(500)
    early = coordinator.join("b")
    assert (early.member_epoch, assigned(early)) == (FIRST, {})
    assert coordinator.group.state_name() == "Assigning"
    coordinator.pass_time(500)
    coordinator.heartbeat("b", FIRST, {})
    assert coordinator.group.assignment_epoch == FIRST + 1


def test_static_members_take_over_from_themselves() -> None:
    coordinator = Coordinator()
    coordinator.join("a", instance_id="i")
    owned = coordinator.join("b", instance_id="i")
    assert owned.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    away = coordinator.heartbeat("a", -2, instance_id="i")
    assert (away.error_code, away.member_epoch) == (0, -2)
    coordinator.written()
    back = coordinator.join("b", instance_id="i")
    assert (back.member_epoch, assigned(back)) == (FIRST, {T: [0, 1, 2]})
    assert coordinator.group.group_epoch == FIRST, "nobody else was disturbed"
    assert coordinator.written() == [
        "-CurrentMemberAssignment", "-TargetAssignmentMember", "-MemberMetadata",
        "MemberMetadata", "TargetAssignmentMember", "CurrentMemberAssignment", "CurrentMemberAssignment",
    ]  # fmt: skip
    assert coordinator.heartbeat("a", 1, instance_id="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert coordinator.heartbeat("c", 1, instance_id="j").error_message == "Instance id j is unknown."


def test_a_static_member_that_stays_away_is_removed_with_its_session() -> None:
    coordinator = Coordinator()
    coordinator.join("a", instance_id="i")
    coordinator.heartbeat("a", -2, instance_id="i")
    coordinator.pass_time(45_000)
    assert coordinator.group.is_empty()


def test_new_partitions_reach_the_members_with_their_next_heartbeat() -> None:
    coordinator = Coordinator({"t": 1})
    coordinator.join("a")
    coordinator.change(with_topic(coordinator.core.shard.image, topic_image("t", 2)))
    answer = coordinator.heartbeat("a", FIRST, {"t": [0]})
    assert (answer.member_epoch, assigned(answer)) == (FIRST + 1, {T: [0, 1]})


def test_a_deleted_topic_is_given_up() -> None:
    coordinator = Coordinator({"t": 1, "u": 1})
    coordinator.join("a", subscribed_topic_names=["t", "u"])
    coordinator.change(without_topic(coordinator.core.shard.image, "u"))
    answer = coordinator.heartbeat("a", FIRST, {"t": [0], "u": [0]})
    assert assigned(answer) == {T: [0]}
    assert coordinator.heartbeat("a", FIRST, {"t": [0]}).member_epoch == FIRST + 1


def test_a_topic_that_comes_later_is_assigned() -> None:
    coordinator = Coordinator({})
    assert assigned(coordinator.join("a")) == {}
    coordinator.change(with_topic(coordinator.core.shard.image, topic_image("t", 1)))
    assert assigned(coordinator.heartbeat("a", FIRST)) == {T: [0]}


def test_a_changed_subscription_gives_up_at_once_what_is_no_longer_wanted() -> None:
    coordinator = Coordinator({"t": 1, "u": 1}, config=GroupConfig())
    coordinator.join("a", subscribed_topic_names=["t", "u"])
    answer = coordinator.heartbeat("a", FIRST, {"t": [0], "u": [0]}, subscribed_topic_names=["t"])
    assert (answer.member_epoch, assigned(answer)) == (FIRST, {T: [0]})
    assert coordinator.group.members["a"].state is MemberState.UNREVOKED_PARTITIONS


def test_describe() -> None:
    coordinator = Coordinator({"t": 2})
    coordinator.join("a", rack_id="r", instance_id="i")
    coordinator.join("b")
    coordinator.heartbeat("a", FIRST, {"t": [0, 1]}, instance_id="i")
    described, missing = coordinator.core.consumer_group_describe([GROUP, "none"])
    assert (missing.error_code, missing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group none not found.")
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == (
        "Reconciling",
        FIRST + 1,
        FIRST + 1,
    )
    assert described.assignor_name == "uniform"
    first, second = described.members
    assert (first.member_id, first.instance_id, first.rack_id, first.member_epoch) == ("a", "i", "r", FIRST)
    assert (first.client_id, first.client_host, first.member_type) == ("client", "/127.0.0.1", 1)
    assert first.subscribed_topic_names == ["t"]
    assert [(t.topic_name, t.partitions) for t in first.assignment.topic_partitions] == [("t", [0, 1])]
    assert len(first.target_assignment.topic_partitions[0].partitions) == 1
    assert second.assignment.topic_partitions == []


def test_commits_are_judged_by_epoch_and_by_partition() -> None:
    """An older epoch is good for a partition that the member had then and still has."""
    coordinator = Coordinator({"t": 2})
    coordinator.settled("a", "b")
    group = coordinator.group
    member = group.members["a"]
    (mine,) = member.assigned[T]

    def check(epoch: int, version: int = 9) -> Any:
        return group.check_offset_commit("a", None, epoch, is_transactional=False, api_version=version)

    assert check(member.member_epoch) is None
    late = check(FIRST)
    late("t", T, mine)
    for error, attempt in (
        (ErrorCode.STALE_MEMBER_EPOCH, lambda: late("t", T, 1 - mine)),
        (ErrorCode.STALE_MEMBER_EPOCH, lambda: check(0)("t", T, mine)),
        (ErrorCode.STALE_MEMBER_EPOCH, lambda: check(99)),
        (ErrorCode.UNSUPPORTED_VERSION, lambda: check(member.member_epoch, version=8)),
        (ErrorCode.STALE_MEMBER_EPOCH, lambda: group.check_offset_fetch("a", 99)),
        (ErrorCode.NON_EMPTY_GROUP, group.check_delete),
    ):
        with pytest.raises(Exception) as caught:
            attempt()
        assert caught.value.code is error  # type: ignore[attr-defined]


def test_a_rebuilt_coordinator_goes_on_where_the_old_one_was() -> None:
    coordinator = Coordinator({"t": 2})
    coordinator.join("a")
    coordinator.join("b")
    coordinator.heartbeat("a", FIRST, {"t": [0, 1]})
    rebuilt = coordinator.rebuilt(coordinator.log)
    again = rebuilt.shard.groups[GROUP]
    assert again.members == coordinator.group.members  # type: ignore[attr-defined]
    assert again.partition_epochs == coordinator.group.partition_epochs  # type: ignore[attr-defined]
    coordinator.core = rebuilt
    coordinator.pass_time(29_999)
    assert set(coordinator.group.members) == {"a", "b"}
    coordinator.pass_time(1)
    assert set(coordinator.group.members) == {"b"}, "the revocation is still owed"
    coordinator.pass_time(15_000)
    assert coordinator.group.is_empty()


def test_deleting_an_empty_group_erases_it() -> None:
    coordinator = Coordinator()
    coordinator.join("a")
    coordinator.heartbeat("a", -1)
    log = list(coordinator.log) + coordinator.group.tombstones()
    assert GROUP not in coordinator.rebuilt(log).shard.groups
