"""Static members of classic groups (KIP-345): they return under a new id, and the old one is fenced."""

from __future__ import annotations

import pytest
from support.classic_groups import Coordinator

from broker.coordinator.group.classic.group import ClassicState
from protocol.errors import ErrorCode


def _pair(coordinator: Coordinator, **options: object) -> tuple[str, str]:
    """The leader's and the follower's member id; their instance ids are "a" and "b"."""
    coordinator.stable_group(instance_ids=["a", "b"], **options)
    static = coordinator.group().static_members
    assert coordinator.group().leader_id == static["a"]
    return static["a"], static["b"]


def test_a_static_member_needs_no_second_round_and_its_id_tells_the_instance() -> None:
    coordinator = Coordinator()
    response = coordinator.join(instance_id="pod-0")
    assert response.error_code == ErrorCode.NONE
    assert response.member_id.startswith("pod-0-")
    assert response.members[0].group_instance_id == "pod-0"


def test_a_follower_returns_to_a_stable_group_unnoticed() -> None:
    coordinator = Coordinator()
    leader, follower = _pair(coordinator)
    response = coordinator.join(instance_id="b")
    assert (response.error_code, response.generation_id, response.leader) == (ErrorCode.NONE, 1, leader)
    assert response.member_id != follower
    assert response.members == []
    assert not response.skip_assignment
    assert coordinator.group().state is ClassicState.STABLE
    assert coordinator.sync(response.member_id, 1, instance_id="b").assignment == follower.encode()
    for code in (
        coordinator.heartbeat(follower, 1, instance_id="b"),
        coordinator.sync(follower, 1, instance_id="b").error_code,
        coordinator.join(follower, instance_id="b").error_code,
        coordinator.commit_code(follower, 1, instance_id="b"),
    ):
        assert code == ErrorCode.FENCED_INSTANCE_ID
    assert coordinator.heartbeat(follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_session_of_the_old_id_does_not_end_that_of_the_new_one() -> None:
    coordinator = Coordinator()
    leader, _ = _pair(coordinator, session_timeout_ms=10_000)
    coordinator.pass_time(6_000)
    coordinator.heartbeat(leader, 1)
    returned = coordinator.join(instance_id="b").member_id
    coordinator.pass_time(6_000)
    assert coordinator.heartbeat(returned, 1, instance_id="b") == ErrorCode.NONE
    assert coordinator.group().state is ClassicState.STABLE


def test_the_new_id_is_stored() -> None:
    coordinator = Coordinator()
    _pair(coordinator)
    response = coordinator.join(instance_id="b")
    coordinator.reload()
    assert coordinator.group().static_members["b"] == response.member_id
    assert coordinator.heartbeat(response.member_id, 1, instance_id="b") == ErrorCode.NONE


def test_a_leader_that_returns_is_told_to_skip_the_assignment() -> None:
    coordinator = Coordinator()
    _pair(coordinator)
    response = coordinator.join(instance_id="a", version=9)
    assert response.skip_assignment
    assert response.leader == response.member_id
    assert len(response.members) == 2


def test_before_version_9_a_leader_that_returns_is_told_that_another_leads() -> None:
    coordinator = Coordinator()
    leader, _ = _pair(coordinator)
    response = coordinator.join(instance_id="a", version=8)
    assert not response.skip_assignment
    assert (response.leader, response.members) == (leader, [])
    assert coordinator.group().leader_id == response.member_id


def test_a_return_that_changes_the_choice_of_protocol_rebalances() -> None:
    coordinator = Coordinator()
    both = [("range", b"r"), ("sticky", b"s")]
    (leader,) = coordinator.stable_group(instance_ids=["a"], protocols=both)
    assert leader.protocol_name == "range"
    response = coordinator.join(instance_id="a", protocols=list(reversed(both)))
    assert (response.generation_id, response.protocol_name) == (2, "sticky")


def test_a_return_while_the_assignment_is_awaited_rebalances() -> None:
    coordinator = Coordinator()
    leader, follower = _pair(coordinator)
    coordinator.send_join(leader, instance_id="a")
    coordinator.join(follower, instance_id="b")
    waiting = coordinator.send_sync(follower, 2, instance_id="b")
    token = coordinator.send_join(instance_id="b")
    assert coordinator.replies[waiting].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert coordinator.group().state is ClassicState.PREPARING_REBALANCE
    coordinator.join(leader, instance_id="a")
    assert coordinator.replies[token].generation_id == 3


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None)])
def test_a_waiting_join_of_the_old_id_is_fenced(version: int, name: str | None) -> None:
    coordinator = Coordinator()
    leader, _ = _pair(coordinator)
    waiting = coordinator.send_join(leader, instance_id="a", version=version)
    coordinator.send_join(instance_id="a")
    answer = coordinator.replies[waiting]
    assert (answer.error_code, answer.member_id, answer.protocol_name) == (ErrorCode.FENCED_INSTANCE_ID, leader, name)
    assert coordinator.group().state is ClassicState.PREPARING_REBALANCE


def test_an_absent_static_member_keeps_its_place_until_its_session_ends() -> None:
    coordinator = Coordinator()
    options = {"rebalance_timeout_ms": 5_000, "session_timeout_ms": 20_000}
    leader, follower = _pair(coordinator, **options)
    token = coordinator.send_join(leader, instance_id="a", **options)
    coordinator.pass_time(5_000)
    answer = coordinator.replies[token]
    assert answer.generation_id == 2
    assert {member.member_id for member in answer.members} == {leader, follower}


def test_an_absent_static_leader_gives_way_to_one_that_joined() -> None:
    coordinator = Coordinator()
    options = {"rebalance_timeout_ms": 5_000, "session_timeout_ms": 20_000}
    _, follower = _pair(coordinator, **options)
    token = coordinator.send_join(follower, instance_id="b", protocols=[("range", b"new")], **options)
    coordinator.pass_time(5_000)
    assert coordinator.replies[token].leader == follower
    assert len(coordinator.group().members) == 2


def test_without_anyone_who_joined_the_rebalance_goes_on() -> None:
    coordinator = Coordinator()
    options = {"rebalance_timeout_ms": 2_000, "session_timeout_ms": 60_000}
    _pair(coordinator, **options)
    dynamic = coordinator.new_member_id(session_timeout_ms=60_000)
    coordinator.send_join(dynamic, **options)
    coordinator.leave(dynamic)
    coordinator.pass_time(10_000)
    group = coordinator.group()
    assert (group.state, group.generation_id, len(group.members)) == (ClassicState.PREPARING_REBALANCE, 1, 2)
