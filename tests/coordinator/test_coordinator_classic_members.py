"""SyncGroup, Heartbeat, LeaveGroup and the ends of sessions in classic groups."""

from __future__ import annotations

import pytest
from support.classic_groups import Coordinator

from broker.coordinator.group.classic.group import ClassicState
from protocol.errors import ErrorCode
from protocol.messages.leave_group import MemberIdentity


def test_followers_wait_for_the_leaders_assignment() -> None:
    coordinator = Coordinator()
    ids = [coordinator.new_member_id() for _ in range(2)]
    tokens = [coordinator.send_join(member_id) for member_id in ids]
    coordinator.pass_time(0)
    assert [coordinator.replies[token].generation_id for token in tokens] == [1, 1]
    follower = coordinator.send_sync(ids[1], 1)
    assert follower not in coordinator.replies
    answer = coordinator.sync(ids[0], 1, {ids[0]: b"a", ids[1]: b"b"})
    assert (answer.assignment, answer.protocol_type, answer.protocol_name) == (b"a", "consumer", "range")
    assert coordinator.replies[follower].assignment == b"b"
    assert coordinator.group().state is ClassicState.STABLE


def test_members_the_leader_forgot_get_an_empty_assignment() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable_group(2)
    coordinator.send_join(leader.member_id)
    coordinator.join(follower.member_id)
    coordinator.sync(leader.member_id, 2, {leader.member_id: b"all", "somebody else": b"x"})
    assert coordinator.sync(follower.member_id, 2).assignment == b""


def test_a_sync_in_a_stable_group_is_answered_at_once() -> None:
    coordinator = Coordinator()
    (leader,) = coordinator.stable_group()
    assert coordinator.sync(leader.member_id, 1).assignment == leader.member_id.encode()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"generation_id": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "ghost"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": None}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": None, "protocol_name": None, "version": 4}, ErrorCode.NONE),
        ({"instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_what_a_sync_is_refused_for(options: dict[str, object], code: ErrorCode) -> None:
    coordinator = Coordinator()
    (leader,) = coordinator.stable_group()
    given = {"member_id": leader.member_id, "generation_id": 1, **options}
    answer = coordinator.sync(**given)  # type: ignore[arg-type]
    assert answer.error_code == code
    if code is not ErrorCode.NONE:
        assert (answer.protocol_type, answer.protocol_name, answer.assignment) == (None, None, b"")


def test_a_rebalance_sends_those_away_that_wait_for_an_assignment() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable_group(2)
    coordinator.send_join(leader.member_id)
    coordinator.join(follower.member_id)
    waiting = coordinator.send_sync(follower.member_id, 2)
    coordinator.leave(leader.member_id)
    assert coordinator.replies[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.sync(follower.member_id, 2).error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_who_joined_but_never_syncs_is_out_after_the_rebalance_timeout() -> None:
    coordinator = Coordinator()
    options = {"rebalance_timeout_ms": 8_000, "session_timeout_ms": 20_000}
    leader, follower = coordinator.stable_group(2, **options)
    coordinator.send_join(leader.member_id, **options)
    coordinator.join(follower.member_id, **options)
    coordinator.sync(leader.member_id, 2, {leader.member_id: b"a"})
    coordinator.pass_time(7_999)
    assert coordinator.heartbeat(follower.member_id, 2) == ErrorCode.NONE
    coordinator.pass_time(1)
    assert list(coordinator.group().members) == [leader.member_id]
    assert coordinator.group().state is ClassicState.PREPARING_REBALANCE


def test_a_leader_that_never_syncs_loses_the_group() -> None:
    coordinator = Coordinator()
    options = {"rebalance_timeout_ms": 8_000, "session_timeout_ms": 20_000}
    leader, follower = coordinator.stable_group(2, **options)
    coordinator.send_join(leader.member_id, **options)
    coordinator.join(follower.member_id, **options)
    waiting = coordinator.send_sync(follower.member_id, 2)
    coordinator.pass_time(8_000)
    assert coordinator.replies[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.group().leader_id == follower.member_id


def test_heartbeat_codes() -> None:
    coordinator = Coordinator()
    assert coordinator.heartbeat("ghost", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.heartbeat("ghost", 1, group_id="") == ErrorCode.INVALID_GROUP_ID
    leader, follower = coordinator.stable_group(2)
    assert coordinator.heartbeat(leader.member_id, 1) == ErrorCode.NONE
    assert coordinator.heartbeat(leader.member_id, 0) == ErrorCode.ILLEGAL_GENERATION
    assert coordinator.heartbeat("ghost", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.heartbeat(leader.member_id, 1, instance_id="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    coordinator.send_join(leader.member_id)
    assert coordinator.heartbeat(follower.member_id, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    coordinator.join(follower.member_id)
    assert coordinator.heartbeat(follower.member_id, 2) == ErrorCode.NONE


def test_a_silent_member_is_out_after_its_session_timeout() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable_group(2, session_timeout_ms=10_000)
    coordinator.pass_time(6_000)
    coordinator.heartbeat(leader.member_id, 1)
    coordinator.pass_time(3_999)
    assert len(coordinator.group().members) == 2
    coordinator.pass_time(1)
    assert list(coordinator.group().members) == [leader.member_id]
    assert coordinator.heartbeat(leader.member_id, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.heartbeat(follower.member_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_waits_for_a_join_does_not_time_out() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable_group(2, session_timeout_ms=6_000, rebalance_timeout_ms=60_000)
    waiting = coordinator.send_join(leader.member_id, session_timeout_ms=6_000, rebalance_timeout_ms=60_000)
    for _ in range(8):
        coordinator.pass_time(4_000)
        assert coordinator.heartbeat(follower.member_id, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert waiting not in coordinator.replies
    assert coordinator.join(follower.member_id).generation_id == 2


def test_when_all_are_gone_the_group_is_empty_in_a_new_generation() -> None:
    coordinator = Coordinator()
    coordinator.stable_group(2, session_timeout_ms=6_000)
    coordinator.pass_time(6_000 + 30_000)
    group = coordinator.group()
    assert (group.state, group.generation_id, group.leader_id) == (ClassicState.EMPTY, 2, None)
    assert group.protocol_type == "consumer"
    coordinator.reload()
    group = coordinator.group()
    assert (group.state, group.generation_id, group.protocol_type) == (ClassicState.EMPTY, 2, "consumer")


def test_leaving_rebalances_the_others() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable_group(2)
    response = coordinator.leave(MemberIdentity(member_id=leader.member_id, reason="scaled down"))
    assert response.error_code == ErrorCode.NONE
    assert [(m.member_id, m.error_code) for m in response.members] == [(leader.member_id, 0)]
    assert coordinator.group().leader_id == follower.member_id
    assert coordinator.join(follower.member_id).generation_id == 2


def test_several_leave_at_once_each_with_its_own_code() -> None:
    coordinator = Coordinator()
    one, _ = coordinator.stable_group(instance_ids=["a", "b"])
    other = next(m.member_id for m in one.members if m.group_instance_id == "b")
    pending = coordinator.new_member_id()
    response = coordinator.leave(
        MemberIdentity(group_instance_id="a"),
        MemberIdentity(group_instance_id="nobody"),
        MemberIdentity(member_id="ghost", group_instance_id="b"),
        MemberIdentity(member_id="ghost"),
        pending,
    )
    assert [m.error_code for m in response.members] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert list(coordinator.group().members) == [other]
    assert not coordinator.group().pending_members


def test_leave_before_version_3_answers_with_one_code() -> None:
    coordinator = Coordinator()
    (leader,) = coordinator.stable_group()
    assert coordinator.leave("ghost", version=2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.leave(leader.member_id, version=2).error_code == ErrorCode.NONE
    assert coordinator.group().state is ClassicState.EMPTY


def test_leaving_no_group() -> None:
    coordinator = Coordinator()
    assert coordinator.leave("me", group_id="").error_code == ErrorCode.INVALID_GROUP_ID
    response = coordinator.leave("me")
    assert response.error_code == ErrorCode.NONE
    assert [(m.member_id, m.error_code) for m in response.members] == [("me", ErrorCode.UNKNOWN_MEMBER_ID)]


def test_a_member_that_leaves_while_it_waits_is_answered() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable_group(2)
    waiting = coordinator.send_join(leader.member_id)
    coordinator.leave(leader.member_id)
    assert coordinator.replies[waiting].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert list(coordinator.group().members) == [follower.member_id]


def test_a_takeover_keeps_the_group_and_starts_the_sessions_anew() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable_group(2, session_timeout_ms=10_000)
    coordinator.pass_time(9_000)
    coordinator.reload()
    coordinator.pass_time(9_999)
    assert coordinator.heartbeat(leader.member_id, 1) == ErrorCode.NONE
    assert coordinator.sync(follower.member_id, 1).assignment == follower.member_id.encode()
    coordinator.pass_time(1)
    assert list(coordinator.group().members) == [leader.member_id]
