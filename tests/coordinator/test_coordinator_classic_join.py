"""JoinGroup of classic groups: who gets in, with which answer, and when the answer comes."""

from __future__ import annotations

import pytest
from support.classic_groups import GROUP, Coordinator

from broker.coordinator.group.classic.group import ClassicState
from broker.coordinator.group.config import GroupConfig
from protocol.errors import ErrorCode


def test_a_new_member_is_sent_away_with_an_id_and_comes_back_with_it() -> None:
    coordinator = Coordinator()
    first = coordinator.join(client_id="app")
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id == "app-id1"
    assert coordinator.group().state is ClassicState.EMPTY
    second = coordinator.join(first.member_id)
    assert second.error_code == ErrorCode.NONE
    assert (second.member_id, second.leader, second.generation_id) == ("app-id1", "app-id1", 1)
    assert (second.protocol_type, second.protocol_name) == ("consumer", "range")
    assert [(m.member_id, m.metadata) for m in second.members] == [("app-id1", b"meta")]
    assert not second.skip_assignment


def test_before_version_4_a_new_member_is_taken_at_once() -> None:
    coordinator = Coordinator()
    assert coordinator.join(version=3).error_code == ErrorCode.NONE


def test_a_group_is_stored_from_its_first_join_on() -> None:
    coordinator = Coordinator()
    coordinator.join()
    coordinator.reload()
    assert coordinator.group().state is ClassicState.EMPTY
    assert coordinator.group().generation_id == 0


def test_a_pending_member_is_forgotten_after_its_session_timeout() -> None:
    coordinator = Coordinator()
    member_id = coordinator.new_member_id(session_timeout_ms=10_000)
    coordinator.pass_time(9_999)
    assert member_id in coordinator.group().pending_members
    coordinator.pass_time(1)
    assert coordinator.join(member_id).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_a_pending_member_but_not_longer_than_its_session() -> None:
    coordinator = Coordinator()
    (leader,) = coordinator.stable_group()
    coordinator.new_member_id(session_timeout_ms=6_000)
    token = coordinator.send_join(leader.member_id, protocols=[("range", b"changed")])
    coordinator.pass_time(5_999)
    assert token not in coordinator.replies
    coordinator.pass_time(1)
    assert coordinator.replies[token].generation_id == 2


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001])
def test_a_session_timeout_out_of_range_is_refused(timeout_ms: int) -> None:
    response = Coordinator().join("me", session_timeout_ms=timeout_ms)
    assert (response.error_code, response.member_id) == (ErrorCode.INVALID_SESSION_TIMEOUT, "me")


def test_a_group_needs_an_id() -> None:
    assert Coordinator().join(group_id="").error_code == ErrorCode.INVALID_GROUP_ID


def test_a_member_of_no_group_is_unknown() -> None:
    coordinator = Coordinator()
    response = coordinator.join("ghost")
    assert (response.error_code, response.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "ghost")
    assert GROUP not in coordinator.core.shard.groups


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None)])
def test_errors_tell_no_protocol_name_since_version_7(version: int, name: str | None) -> None:
    coordinator = Coordinator()
    coordinator.stable_group()
    response = coordinator.join("ghost", version=version)
    assert (response.error_code, response.protocol_name) == (ErrorCode.UNKNOWN_MEMBER_ID, name)
    assert response.generation_id == -1
    response = coordinator.join(session_timeout_ms=1, version=version)
    assert (response.error_code, response.protocol_name) == (ErrorCode.INVALID_SESSION_TIMEOUT, name)


@pytest.mark.parametrize(
    ("protocol_type", "protocols"), [("", [("range", b"")]), ("consumer", []), ("connect", [("range", b"")])]
)
def test_protocols_that_cannot_go_together_are_refused(protocol_type: str, protocols: list[tuple[str, bytes]]) -> None:
    coordinator = Coordinator()
    if protocol_type == "connect":
        coordinator.stable_group()
    response = coordinator.join(protocol_type=protocol_type, protocols=protocols)
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_without_a_common_protocol_is_refused() -> None:
    coordinator = Coordinator()
    coordinator.stable_group(protocols=[("range", b"")])
    response = coordinator.join(protocols=[("sticky", b"")])
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_other_protocol_types_than_consumer_are_welcome() -> None:
    coordinator = Coordinator()
    (worker,) = coordinator.stable_group(protocol_type="connect", protocols=[("sessioned", b"url")])
    assert (worker.protocol_type, worker.protocol_name) == ("connect", "sessioned")
    assert coordinator.group().state is ClassicState.STABLE


def test_members_vote_for_a_protocol_among_those_all_support() -> None:
    coordinator = Coordinator(GroupConfig(classic_initial_rebalance_delay_ms=100))
    ids = [coordinator.new_member_id() for _ in range(3)]
    preferences = [["range", "sticky", "own"], ["sticky", "range"], ["sticky", "range"]]
    tokens = [
        coordinator.send_join(member_id, protocols=[(name, name.encode()) for name in names])
        for member_id, names in zip(ids, preferences, strict=True)
    ]
    coordinator.pass_time(1_000)
    assert {coordinator.replies[token].protocol_name for token in tokens} == {"sticky"}
    leader = next(coordinator.replies[token] for token in tokens if coordinator.replies[token].members)
    assert {member.metadata for member in leader.members} == {b"sticky"}


def test_only_the_leader_is_told_the_members() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable_group(2)
    assert len(leader.members) == 2
    assert follower.members == []
    assert follower.leader == leader.member_id


def test_the_initial_delay_is_extended_while_members_come() -> None:
    coordinator = Coordinator(GroupConfig(classic_initial_rebalance_delay_ms=3_000))
    ids = [coordinator.new_member_id() for _ in range(3)]
    first = coordinator.send_join(ids[0])
    coordinator.pass_time(2_000)
    coordinator.send_join(ids[1])
    coordinator.pass_time(1_000)
    assert first not in coordinator.replies
    coordinator.pass_time(2_000)
    coordinator.send_join(ids[2])
    coordinator.pass_time(1_000)
    assert first not in coordinator.replies
    coordinator.pass_time(3_000)
    assert len(coordinator.replies[first].members) == 3


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    coordinator = Coordinator(GroupConfig(classic_initial_rebalance_delay_ms=3_000))
    ids = [coordinator.new_member_id(session_timeout_ms=60_000) for _ in range(20)]
    first = coordinator.send_join(ids[0], rebalance_timeout_ms=7_000)
    for member_id in ids[1:]:
        coordinator.pass_time(1_000)
        coordinator.send_join(member_id, rebalance_timeout_ms=7_000)
        if first in coordinator.replies:
            break
    assert 7_000 <= coordinator.now_ms - 1_700_000_000_000 <= 10_000


def test_the_group_is_not_larger_than_its_maximum() -> None:
    coordinator = Coordinator(GroupConfig(classic_initial_rebalance_delay_ms=0, classic_max_size=2))
    coordinator.stable_group(2)
    response = coordinator.join()
    assert (response.error_code, response.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")


def test_in_a_rebalance_the_first_to_join_have_the_places() -> None:
    coordinator = Coordinator(GroupConfig(classic_initial_rebalance_delay_ms=1_000, classic_max_size=2))
    ids = [coordinator.new_member_id() for _ in range(3)]
    tokens = [coordinator.send_join(member_id) for member_id in ids]
    assert coordinator.replies[tokens[2]].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    coordinator.pass_time(2_000)
    assert len(coordinator.replies[tokens[0]].members) == 2


def test_a_group_loaded_over_its_maximum_rebalances() -> None:
    coordinator = Coordinator()
    coordinator.stable_group(3)
    coordinator.config = GroupConfig(classic_initial_rebalance_delay_ms=0, classic_max_size=2)
    coordinator.reload()
    assert coordinator.group().state is ClassicState.PREPARING_REBALANCE


def test_a_lost_answer_is_given_again_to_the_same_join() -> None:
    coordinator = Coordinator()
    member_id = coordinator.new_member_id()
    first = coordinator.join(member_id)
    again = coordinator.join(member_id)
    assert again == first
    assert coordinator.group().state is ClassicState.COMPLETING_REBALANCE


def test_a_follower_with_nothing_new_does_not_disturb_a_stable_group() -> None:
    coordinator = Coordinator()
    _, follower = coordinator.stable_group(2)
    response = coordinator.join(follower.member_id)
    assert (response.generation_id, response.error_code) == (1, ErrorCode.NONE)
    assert coordinator.group().state is ClassicState.STABLE


def test_a_leader_that_joins_again_asks_for_a_rebalance() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable_group(2)
    token = coordinator.send_join(leader.member_id)
    assert coordinator.group().state is ClassicState.PREPARING_REBALANCE
    assert coordinator.heartbeat(follower.member_id, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.join(follower.member_id).generation_id == 2
    assert coordinator.replies[token].generation_id == 2


def test_who_does_not_join_within_the_rebalance_timeout_is_out() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable_group(2, rebalance_timeout_ms=8_000)
    token = coordinator.send_join(follower.member_id, protocols=[("range", b"new")], rebalance_timeout_ms=8_000)
    coordinator.pass_time(7_999)
    assert token not in coordinator.replies
    coordinator.pass_time(1)
    answer = coordinator.replies[token]
    assert (answer.generation_id, answer.leader) == (2, follower.member_id)
    assert coordinator.heartbeat(leader.member_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_version_0_gives_the_session_timeout_to_join_again() -> None:
    coordinator = Coordinator()
    coordinator.join(version=0, session_timeout_ms=7_000, rebalance_timeout_ms=-1)
    assert coordinator.group().rebalance_timeout_ms() == 7_000


def test_the_longest_rebalance_timeout_counts() -> None:
    coordinator = Coordinator(GroupConfig(classic_initial_rebalance_delay_ms=100))
    coordinator.send_join(version=3, rebalance_timeout_ms=5_000)
    coordinator.send_join(version=3, rebalance_timeout_ms=9_000)
    assert coordinator.group().rebalance_timeout_ms() == 9_000


def test_a_second_join_of_the_same_member_takes_the_place_of_the_first() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.stable_group(2)
    first = coordinator.send_join(leader.member_id)
    second = coordinator.send_join(leader.member_id)
    assert coordinator.replies[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    coordinator.join(follower.member_id)
    assert coordinator.replies[second].generation_id == 2


def test_a_new_member_that_nobody_answers_is_dropped_after_five_minutes() -> None:
    """Its client may long be gone, and without an answer it does not know the id it would heartbeat with."""
    coordinator = Coordinator()
    coordinator.stable_group(2, instance_ids=["a", "b"], rebalance_timeout_ms=1_000_000, session_timeout_ms=1_000_000)
    token = coordinator.send_join(version=3, rebalance_timeout_ms=1_000_000)
    coordinator.pass_time(300_000)
    assert coordinator.replies[token].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert len(coordinator.group().members) == 2
