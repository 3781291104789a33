"""DescribeGroups, ListGroups and DeleteGroups."""

from __future__ import annotations

from support.classic_groups import GROUP, Coordinator

from broker.coordinator.group.base import Client
from protocol.coordinator.group_metadata import GroupMetadataKey
from protocol.coordinator.offset_commit import OffsetCommitKey
from protocol.errors import ErrorCode
from protocol.messages.delete_groups import DeletableGroupResult
from protocol.messages.describe_groups import DescribedGroup


def describe(coordinator: Coordinator, group_id: str = GROUP, version: int = 6) -> DescribedGroup:
    (described,) = coordinator.core.describe_groups([group_id], Client("tool", "/127.0.0.1", version))
    return described


def listed(coordinator: Coordinator, states: list[str] | None = None, types: list[str] | None = None) -> list[str]:
    return sorted(group.group_id for group in coordinator.core.list_groups(states or [], types or []))


def delete(coordinator: Coordinator, *group_ids: str) -> list[tuple[str, int]]:
    token = coordinator.token()
    coordinator.perform(coordinator.core.delete_groups(coordinator.now_ms, token, group_ids))
    results = coordinator.replies[token]
    assert all(isinstance(result, DeletableGroupResult) for result in results)
    return [(result.group_id, result.error_code) for result in results]


def test_a_stable_group_is_described_with_what_its_members_said() -> None:
    coordinator = Coordinator()
    (leader,) = coordinator.stable_group(instance_ids=["pod-0"], client_id="app")
    described = describe(coordinator)
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    (member,) = described.members
    assert (member.member_id, member.group_instance_id) == (leader.member_id, "pod-0")
    assert (member.client_id, member.client_host) == ("app", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (b"meta", leader.member_id.encode())


def test_in_a_rebalance_nothing_is_said_of_protocol_and_metadata() -> None:
    coordinator = Coordinator()
    leader, _ = coordinator.stable_group(2)
    coordinator.send_join(leader.member_id)
    described = describe(coordinator)
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert {member.member_metadata for member in described.members} == {b""}


def test_an_empty_group_keeps_its_protocol_type() -> None:
    coordinator = Coordinator()
    (leader,) = coordinator.stable_group()
    coordinator.leave(leader.member_id)
    described = describe(coordinator)
    assert (described.group_state, described.protocol_type, described.members) == ("Empty", "consumer", [])


def test_a_group_that_is_not_there_is_dead_and_since_version_6_not_found() -> None:
    described = describe(Coordinator(), "nowhere", version=5)
    assert (described.error_code, described.group_state) == (ErrorCode.NONE, "Dead")
    described = describe(Coordinator(), "nowhere", version=6)
    assert (described.error_code, described.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert described.error_message == "Group nowhere not found."


def test_groups_are_listed_by_state_and_type_without_regard_to_case() -> None:
    coordinator = Coordinator()
    coordinator.commit_code(group_id="simple")
    coordinator.stable_group(group_id="busy")
    assert listed(coordinator) == ["busy", "simple"]
    assert listed(coordinator, states=["sTABLE"]) == ["busy"]
    assert listed(coordinator, states=["Empty", "Stable"], types=["Classic"]) == ["busy", "simple"]
    assert listed(coordinator, types=["consumer"]) == []
    assert listed(coordinator, states=["nonsense"]) == []
    by_id = {group.group_id: group for group in coordinator.core.list_groups([], [])}
    assert (by_id["busy"].protocol_type, by_id["busy"].group_state) == ("consumer", "Stable")
    assert (by_id["simple"].protocol_type, by_id["simple"].group_type) == ("", "classic")


def test_deleting_removes_the_offsets_and_the_group_from_the_log() -> None:
    coordinator = Coordinator()
    (leader,) = coordinator.stable_group()
    coordinator.commit({("t", 0): 1, ("t", 1): 2}, leader.member_id, 1)
    assert delete(coordinator, GROUP, "nowhere", "") == [
        (GROUP, ErrorCode.NON_EMPTY_GROUP),
        ("nowhere", ErrorCode.GROUP_ID_NOT_FOUND),
        ("", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    coordinator.leave(leader.member_id)
    assert delete(coordinator, GROUP) == [(GROUP, ErrorCode.NONE)]
    last = coordinator.records()[-3:]
    assert [type(record.key) for record in last] == [OffsetCommitKey, OffsetCommitKey, GroupMetadataKey]
    assert all(record.value is None for record in last)
    coordinator.reload()
    assert coordinator.core.shard.groups == {}
    assert coordinator.committed("t", 0) == -1


def test_deadlines_of_a_deleted_group_do_not_fire() -> None:
    coordinator = Coordinator()
    coordinator.new_member_id()
    assert delete(coordinator, GROUP) == [(GROUP, ErrorCode.NONE)]
    coordinator.pass_time(60_000)
    assert coordinator.core.shard.groups == {}
