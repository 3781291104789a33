"""Records of the group coordinator as bytes, and the deadlines they are rebuilt with."""

from __future__ import annotations

import pytest
from support.classic_groups import GROUP, Coordinator, subscription

from broker.coordinator.effects import Effects, Reply
from broker.coordinator.group.classic.group import subscribed_topics
from broker.coordinator.records import CoordinatorRecord, UnknownRecord, decode_record, encode_record, tombstone
from protocol.coordinator.group_metadata import GroupMetadataKey, GroupMetadataValue
from protocol.coordinator.offset_commit import OffsetCommitKey, OffsetCommitValue
from protocol.errors import DecodeError


def test_a_record_survives_its_encoding() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=1)
    record = CoordinatorRecord(key, OffsetCommitValue(offset=5, metadata="m", commit_timestamp=7), 4)
    assert decode_record(*encode_record(record)) == record
    assert decode_record(*encode_record(tombstone(key))) == tombstone(key)


def test_keys_begin_with_the_type_and_values_with_the_version() -> None:
    record = CoordinatorRecord(GroupMetadataKey(group="g"), GroupMetadataValue(), 3)
    key, value = encode_record(record)
    assert value is not None
    assert (key[:2], value[:2]) == (b"\0\2", b"\0\3")


def test_a_record_of_a_newer_broker_is_told_apart_from_a_broken_one() -> None:
    with pytest.raises(UnknownRecord):
        decode_record(b"\x7f\x00", b"\0\0")
    key, _ = encode_record(tombstone(GroupMetadataKey(group="g")))
    with pytest.raises(DecodeError):
        decode_record(key, b"\0\3")
    with pytest.raises(DecodeError):
        decode_record(b"\0", None)


def test_a_group_is_stored_with_its_members_and_their_assignments() -> None:
    coordinator = Coordinator()
    joined_ms = coordinator.now_ms
    (leader,) = coordinator.stable_group(instance_ids=["pod-0"])
    record = coordinator.records()[-1]
    assert (record.key, record.value_version) == (GroupMetadataKey(group=GROUP), 3)
    value = record.value
    assert isinstance(value, GroupMetadataValue)
    assert (value.protocol_type, value.protocol, value.generation) == ("consumer", "range", 1)
    assert (value.leader, value.current_state_timestamp) == (leader.member_id, joined_ms)
    (member,) = value.members
    assert (member.member_id, member.group_instance_id) == (leader.member_id, "pod-0")
    assert (member.session_timeout, member.rebalance_timeout) == (10_000, 30_000)
    assert (member.subscription, member.assignment) == (b"meta", leader.member_id.encode())


def test_a_new_group_is_stored_as_an_empty_one() -> None:
    coordinator = Coordinator()
    coordinator.join()
    (record,) = coordinator.records()
    value = record.value
    assert isinstance(value, GroupMetadataValue)
    assert (value.protocol_type, value.protocol, value.leader, value.members) == ("", None, None, [])
    assert value.generation == 0


@pytest.mark.parametrize("version", range(4))
def test_groups_of_all_stored_versions_are_read(version: int) -> None:
    coordinator = Coordinator()
    (leader,) = coordinator.stable_group(protocols=[("range", subscription("t"))])
    last = coordinator.records()[-1]
    assert last.value is not None
    coordinator.log = [encode_record(CoordinatorRecord(last.key, last.value, version))]
    coordinator.reload()
    group = coordinator.group()
    assert group.leader_id == leader.member_id
    assert group.subscribed_topics == {"t"}
    assert group.rebalance_timeout_ms() == (10_000 if version == 0 else 30_000)
    assert group.current_state_timestamp == (None if version < 2 else coordinator.now_ms)


@pytest.mark.parametrize("version", range(4))
def test_the_topics_of_a_consumer_of_any_version_are_read(version: int) -> None:
    assert subscribed_topics(subscription("a", "b", version=version)) == ["a", "b"]


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\0\0\0\1"])
def test_metadata_that_is_no_subscription_is_noticed(metadata: bytes) -> None:
    with pytest.raises(DecodeError):
        subscribed_topics(metadata)


def test_effects_add_up_in_order() -> None:
    record = tombstone(GroupMetadataKey(group="g"))
    effects = Effects.reply("a", 1).extend(Effects([record], [Reply("b", 2)]))
    effects.add_reply("c", 3)
    assert effects.records == [record]
    assert [reply.token for reply in effects.replies] == ["a", "b", "c"]
    assert effects
    assert not Effects()
