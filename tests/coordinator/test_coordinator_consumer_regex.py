"""Subscriptions by regular expression: what they match, when they are looked at again, and their records."""

from __future__ import annotations

import time

import pytest
from support.consumer_groups import Coordinator, assigned
from support.group_images import topic_id_of, topic_image, with_topic

from broker.coordinator.group.consumer.regex import RegexError, TopicRegex
from protocol.coordinator.consumer_group_regular_expression import ConsumerGroupRegularExpressionValue
from protocol.errors import ErrorCode

TOPICS = {"t1": 1, "t2": 1, "u1": 1}


def join(coordinator: Coordinator, member_id: str, regex: str) -> int:
    answer = coordinator.join(member_id, subscribed_topic_names=None, subscribed_topic_regex=regex)
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    return int(answer.member_epoch)


def test_an_expression_matches_whole_names() -> None:
    regex = TopicRegex("t[12]|u.+")
    assert regex.matching(["t1", "t12", "at1", "u", "u-1", "t2"]) == {"t1", "t2", "u-1"}


def test_an_expression_that_would_stall_a_backtracking_engine_is_quick() -> None:
    """The story: (a*)*b against a long name of a's takes Python's re longer than the universe lasts."""
    started = time.process_time()
    assert TopicRegex("(a*)*b").matching(["a" * 249, "a" * 248 + "b"]) == {"a" * 248 + "b"}
    assert time.process_time() - started < 2


@pytest.mark.parametrize("pattern", ["(", "a**", "[z-a]", "(?=a)", "\\1", "a{1001}", "((a{100}){100}){100}"])
def test_what_re2_would_not_take_is_refused(pattern: str) -> None:
    with pytest.raises(RegexError):
        TopicRegex(pattern)


def test_the_topics_are_known_with_the_second_heartbeat() -> None:
    coordinator = Coordinator(TOPICS)
    epoch = join(coordinator, "a", "t.*")
    assert epoch > 0
    assert coordinator.written() == [
        "MemberMetadata", "CurrentMemberAssignment", "RegularExpression", "Metadata",
    ]  # fmt: skip
    answer = coordinator.heartbeat("a", epoch, {})
    assert set(assigned(answer) or {}) == {topic_id_of("t1"), topic_id_of("t2")}


def test_an_invalid_expression_is_refused() -> None:
    coordinator = Coordinator(TOPICS)
    answer = coordinator.join("a", subscribed_topic_names=None, subscribed_topic_regex="[")
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert answer.error_message.startswith("SubscribedTopicRegex `[` is not a valid regular expression: ")
    assert coordinator.written() == []


def test_a_new_topic_is_found_but_not_more_often_than_every_ten_seconds() -> None:
    coordinator = Coordinator(TOPICS)
    epoch = join(coordinator, "a", "t.*")
    epoch = coordinator.heartbeat("a", epoch, {}).member_epoch
    coordinator.change(with_topic(coordinator.core.shard.image, topic_image("t3", 1)))
    coordinator.pass_time(10_000)
    assert coordinator.heartbeat("a", epoch, {"t1": [0], "t2": [0]}).assignment is None
    coordinator.pass_time(1)
    coordinator.heartbeat("a", epoch, {"t1": [0], "t2": [0]})  # looks, and the group learns of it
    found = assigned(coordinator.heartbeat("a", epoch, {"t1": [0], "t2": [0]})) or {}
    assert topic_id_of("t3") in found


def test_expressions_are_looked_at_again_after_the_refresh_interval() -> None:
    coordinator = Coordinator(TOPICS)
    epoch = join(coordinator, "a", "t.*")
    epoch = coordinator.heartbeat("a", epoch, {}).member_epoch
    coordinator.log.clear()
    for _ in range(60):
        coordinator.pass_time(10_001)
        coordinator.heartbeat("a", epoch, {"t1": [0], "t2": [0]})
    values = [record.value for record in coordinator.log]
    (value,) = values
    assert isinstance(value, ConsumerGroupRegularExpressionValue)
    assert value.topics == ["t1", "t2"]


def test_the_record_goes_with_the_last_member_that_has_the_expression() -> None:
    coordinator = Coordinator(TOPICS)
    join(coordinator, "a", "t.*")
    join(coordinator, "b", "t.*")
    coordinator.written()
    coordinator.heartbeat("a", -1)
    assert "-RegularExpression" not in coordinator.written()
    coordinator.heartbeat("b", -1)
    assert "-RegularExpression" in coordinator.written()
    assert not coordinator.group.resolved_regexes
    assert not coordinator.group.subscriptions


def test_changing_to_an_expression_that_matches_nothing_leaves_the_topics_to_others() -> None:
    """The story: seed 51049 of the simulation. The target of the member stayed as it was, it gave the partitions up
    as not its own any more, and nobody got them, because the topics of the group had not changed. Apache Kafka 4.3.1
    leaves them lying, too.
    """
    coordinator = Coordinator({"t": 4})
    join(coordinator, "a", "t.*")
    coordinator.join("b")
    beat_all(coordinator, "a", "b")
    assert {member: len(held) for member, held in owned_by(coordinator).items()} == {"a": 2, "b": 2}
    coordinator.pass_time(10_001)
    member = coordinator.group.members["a"]
    held = {"t": sorted(partition for _, partition in owned_by(coordinator)["a"])}
    coordinator.heartbeat("a", member.member_epoch, held, subscribed_topic_regex="nothing.*")
    beat_all(coordinator, "a", "b")
    assert {member: len(held) for member, held in owned_by(coordinator).items()} == {"a": 0, "b": 4}


def owned_by(coordinator: Coordinator) -> dict[str, set[tuple[str, int]]]:
    return {
        member_id: {(coordinator.topic_name(topic), index) for topic, held in member.assigned.items() for index in held}
        for member_id, member in coordinator.group.members.items()
    }


def beat_all(coordinator: Coordinator, *member_ids: str) -> None:
    for _ in range(5):
        for member_id in member_ids:
            member = coordinator.group.members[member_id]
            held = {coordinator.topic_name(topic): sorted(held) for topic, held in member.assigned.items()}
            coordinator.heartbeat(member_id, member.member_epoch, held)


def test_taking_the_expression_back_gives_the_topics_up() -> None:
    coordinator = Coordinator(TOPICS)
    epoch = join(coordinator, "a", "t.*")
    epoch = coordinator.heartbeat("a", epoch, {}).member_epoch
    answer = coordinator.heartbeat(
        "a", epoch, {"t1": [0], "t2": [0]}, subscribed_topic_names=["t1"], subscribed_topic_regex=""
    )
    assert set(assigned(answer) or {}) == {topic_id_of("t1")}
