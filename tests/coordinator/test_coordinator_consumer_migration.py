"""Groups on the way between the protocols: classic members in a consumer group, upgrade, downgrade."""

from __future__ import annotations

from typing import Any

import pytest
from support.consumer_groups import GROUP, Coordinator, assigned
from support.group_images import topic_id_of

from broker.coordinator.group.base import GroupType
from broker.coordinator.group.classic.group import ClassicGroup
from broker.coordinator.group.config import GroupConfig
from protocol.errors import ErrorCode
from protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from protocol.messages.sync_group import SyncGroupRequestAssignment

T = topic_id_of("t")
CONFIG = GroupConfig(consumer_assignment_interval_ms=0, classic_initial_rebalance_delay_ms=0)


def embedded(**topics: list[int]) -> bytes:
    held = [TopicPartition(topic=topic, partitions=partitions) for topic, partitions in topics.items()]
    return b"\x00\x01" + ConsumerProtocolAssignment(assigned_partitions=held).encode(1)


def partitions(response: Any) -> dict[str, list[int]]:
    decoded = ConsumerProtocolAssignment.decode(response.assignment, 1, 2)
    return {held.topic: held.partitions for held in decoded.assigned_partitions}


def classic_group(coordinator: Coordinator) -> str:
    """A stable classic group of one member that has all three partitions; its id."""
    joined = coordinator.classic_member()
    assert joined.error_code == ErrorCode.NONE
    assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=embedded(t=[0, 1, 2]))
    synced = coordinator.classic_sync(joined.member_id, joined.generation_id, assignments=[assignment])
    assert synced.error_code == ErrorCode.NONE
    return str(joined.member_id)


def test_a_running_group_is_upgraded_by_the_first_heartbeat() -> None:
    coordinator = Coordinator(config=CONFIG)
    old = classic_group(coordinator)
    coordinator.written()
    joined = coordinator.join("new")
    assert (joined.error_code, joined.member_epoch, assigned(joined)) == (0, 2, {})
    assert coordinator.written() == [
        "-GroupMetadata",
        "MemberMetadata", "Metadata", "TargetAssignmentMember", "TargetAssignmentMetadata", "CurrentMemberAssignment",
        "MemberMetadata", "Metadata",
        "TargetAssignmentMember", "TargetAssignmentMember", "TargetAssignmentMetadata", "CurrentMemberAssignment",
    ]  # fmt: skip
    group = coordinator.group
    assert set(group.members) == {old, "new"}
    assert set(group.members[old].assigned[T]) == {0, 1, 2}

    # The classic member is made to join again, gives up, and syncs what is left to it.
    assert coordinator.classic_heartbeat(old, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    rejoined = coordinator.classic_join(old)
    assert (rejoined.error_code, rejoined.generation_id, rejoined.leader, rejoined.members) == (0, 2, "", [])
    assert (rejoined.protocol_type, rejoined.protocol_name) == ("consumer", "range")
    kept = partitions(coordinator.classic_sync(old, 2, protocol_type="consumer", protocol_name="range"))
    given = assigned(coordinator.heartbeat("new", 2, {}))
    assert sorted(kept["t"] + (given or {})[T]) == [0, 1, 2]
    assert coordinator.classic_heartbeat(old, 2) == ErrorCode.NONE
    assert group.state_name() == "Stable"
    described = coordinator.core.consumer_group_describe([GROUP])[0]
    assert sorted(member.member_type for member in described.members) == [0, 1]


def test_a_cooperative_member_keeps_what_it_reports_until_it_gave_up() -> None:
    coordinator = Coordinator(config=CONFIG)
    old = classic_group(coordinator)
    coordinator.join("new")
    rejoined = coordinator.classic_join(old, owned={"t": [0, 1, 2]})
    assert rejoined.generation_id == 1, "its epoch stands still until it gave up"
    kept = partitions(coordinator.classic_sync(old, 1))["t"]
    assert len(kept) == 2
    assert assigned(coordinator.heartbeat("new", 2, {})) is None
    assert coordinator.classic_heartbeat(old, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.classic_join(old, owned={"t": kept}).generation_id == 2
    assert len((assigned(coordinator.heartbeat("new", 2, {})) or {})[T]) == 1


def test_waiting_joins_are_sent_away_by_the_upgrade() -> None:
    coordinator = Coordinator(config=CONFIG)
    classic_group(coordinator)
    second = coordinator.classic_join()
    coordinator.classic_join(second.member_id)  # waits for the first one to join again
    token = coordinator.tokens
    assert token not in coordinator.replies
    coordinator.join("new")
    assert coordinator.replies[token].error_code == ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_the_policy_may_forbid_the_upgrade(policy: str) -> None:
    coordinator = Coordinator(
        config=GroupConfig(consumer_migration_policy=policy, classic_initial_rebalance_delay_ms=0)
    )
    classic_group(coordinator)
    refused = coordinator.join("new")
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused.error_message == (
        "Cannot upgrade classic group g to consumer group because online upgrade is disabled."
    )


def test_the_group_is_downgraded_when_its_last_native_member_leaves() -> None:
    coordinator = Coordinator(config=CONFIG)
    old = classic_group(coordinator)
    coordinator.join("new")
    coordinator.written()
    assert coordinator.heartbeat("new", -1).error_code == ErrorCode.NONE
    group = coordinator.core.shard.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert (list(group.members), group.state_name()) == ([old], "PreparingRebalance")
    names = coordinator.written()
    assert names[-1] == "GroupMetadata"
    assert [name for name in names if "GroupMetadata" not in name] == [
        "-CurrentMemberAssignment", "-CurrentMemberAssignment", "-TargetAssignmentMember", "-TargetAssignmentMember",
        "-TargetAssignmentMetadata", "-MemberMetadata", "-MemberMetadata", "-PartitionMetadata", "-Metadata",
    ]  # fmt: skip
    assert coordinator.classic_join(old).generation_id > 1


def test_a_downgrade_by_a_session_that_ends_survives_a_reload() -> None:
    coordinator = Coordinator(config=CONFIG)
    old = classic_group(coordinator)
    coordinator.join("new")
    for _ in range(10):
        coordinator.pass_time(5_000)
        epoch = 1 if isinstance(coordinator.core.shard.groups[GROUP], ClassicGroup) else 2
        coordinator.classic_join(old)
        coordinator.classic_heartbeat(old, epoch)
    assert coordinator.core.shard.groups[GROUP].group_type is GroupType.CLASSIC
    rebuilt = coordinator.rebuilt(coordinator.log).shard.groups[GROUP]
    assert isinstance(rebuilt, ClassicGroup)
    assert list(rebuilt.members) == [old]


def test_a_static_member_that_comes_back_with_the_classic_protocol_downgrades_the_group() -> None:
    coordinator = Coordinator(config=CONFIG)
    old = classic_group(coordinator)
    coordinator.join("new", instance_id="i")
    joined = coordinator.classic_join(instance_id="i", topics=["t"])
    assert joined.error_code == ErrorCode.NONE
    group = coordinator.core.shard.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    assert set(group.members) == {old, joined.member_id}
    rebuilt = coordinator.rebuilt(coordinator.log).shard.groups[GROUP]
    assert isinstance(rebuilt, ClassicGroup)
    assert set(rebuilt.members) == set(group.members)


def test_classic_members_are_told_what_is_wrong() -> None:
    coordinator = Coordinator(config=CONFIG)
    coordinator.join("new")
    joined = coordinator.classic_member()
    member_id, epoch = joined.member_id, joined.generation_id
    assert coordinator.classic_heartbeat("nobody", epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.classic_heartbeat(member_id, epoch + 1) == ErrorCode.ILLEGAL_GENERATION
    assert coordinator.classic_heartbeat("new", epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    wrong = coordinator.classic_sync(member_id, epoch, protocol_type="consumer", protocol_name="sticky")
    assert wrong.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert coordinator.classic_sync(member_id, epoch - 1).error_code == ErrorCode.ILLEGAL_GENERATION
    other = coordinator.classic_join("other", protocol="sticky")
    assert other.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert coordinator.classic_leave((member_id, None), ("nobody", None)) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert set(coordinator.group.members) == {"new"}


def test_a_classic_member_that_never_syncs_is_removed() -> None:
    coordinator = Coordinator(config=CONFIG)
    coordinator.join("new")
    joined = coordinator.classic_member()
    for _ in range(4):
        coordinator.pass_time(5_000)
        coordinator.heartbeat("new", 2)
        coordinator.classic_heartbeat(joined.member_id, joined.generation_id)
    assert set(coordinator.group.members) == {"new"}


def test_empty_groups_change_their_kind_with_the_next_member() -> None:
    coordinator = Coordinator(config=CONFIG)
    coordinator.join("a")
    coordinator.heartbeat("a", -1)
    old = classic_group(coordinator)
    assert coordinator.core.shard.groups[GROUP].group_type is GroupType.CLASSIC
    assert coordinator.classic_leave((old, None)) == [ErrorCode.NONE]
    coordinator.written()
    assert coordinator.join("b").error_code == ErrorCode.NONE
    assert coordinator.written()[:2] == ["-GroupMetadata", "MemberMetadata"]
    assert coordinator.rebuilt(coordinator.log).shard.groups.keys() <= {GROUP}
