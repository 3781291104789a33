"""OffsetCommit, OffsetFetch and OffsetDelete: the checks, the answers and what is stored."""

from __future__ import annotations

import pytest
from support.classic_groups import GROUP, Coordinator, subscription

from broker.coordinator.group.classic.group import ClassicState
from broker.coordinator.group.config import GroupConfig
from broker.coordinator.group.offsets import CommittedOffset, OffsetStore
from broker.coordinator.records import CoordinatorRecord, tombstone
from controller.image import ImageDelta, MetadataImage, TopicImage
from protocol.coordinator.legacy_offset_commit import LegacyOffsetCommitKey, LegacyOffsetCommitValue
from protocol.coordinator.offset_commit import OffsetCommitKey, OffsetCommitValue
from protocol.errors import ErrorCode
from protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from protocol.uuids import Uuid

OLD_ID = Uuid(b"\x01" * 16)
NEW_ID = Uuid(b"\x02" * 16)


def delete(coordinator: Coordinator, topics: dict[str, list[int]], group_id: str = GROUP) -> OffsetDeleteResponse:
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
            )
            for name, partitions in topics.items()
        ],
    )
    token = coordinator.token()
    coordinator.perform(coordinator.core.offset_delete(coordinator.now_ms, token, request))
    response = coordinator.replies[token]
    assert isinstance(response, OffsetDeleteResponse)
    return response


# --- commit -----------------------------------------------------------------------------------------------------------


def test_a_simple_consumer_commits_without_a_group() -> None:
    coordinator = Coordinator()
    assert coordinator.commit_code() == ErrorCode.NONE
    assert coordinator.committed("t", 0) == 5
    group = coordinator.group()
    assert (group.state, group.protocol_type) == (ClassicState.EMPTY, None)
    coordinator.reload()
    assert coordinator.committed("t", 0) == 5


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_member_of_an_unknown_group_cannot_commit(version: int, code: ErrorCode) -> None:
    coordinator = Coordinator()
    assert coordinator.commit_code("ghost", 3, version=version) == code
    assert GROUP not in coordinator.core.shard.groups


def test_who_may_commit_to_a_group_with_members() -> None:
    coordinator = Coordinator()
    (leader,) = coordinator.stable_group()
    assert coordinator.commit_code(leader.member_id, 1) == ErrorCode.NONE
    assert coordinator.commit_code(leader.member_id, 0) == ErrorCode.ILLEGAL_GENERATION
    assert coordinator.commit_code(leader.member_id, -1) == ErrorCode.ILLEGAL_GENERATION
    assert coordinator.commit_code("ghost", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.commit_code() == ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.commit_code(leader.member_id, 1, instance_id="x") == ErrorCode.UNKNOWN_MEMBER_ID


def test_commits_in_a_rebalance() -> None:
    """What was consumed may still be committed while the members join, but no longer once the next generation is
    there: the partition may already belong to another member."""
    coordinator = Coordinator()
    leader, follower = coordinator.stable_group(2)
    coordinator.send_join(leader.member_id)
    assert coordinator.commit_code(follower.member_id, 1) == ErrorCode.NONE
    coordinator.join(follower.member_id)
    assert coordinator.commit_code(follower.member_id, 1) == ErrorCode.ILLEGAL_GENERATION
    assert coordinator.commit_code(follower.member_id, 2) == ErrorCode.REBALANCE_IN_PROGRESS


def test_anyone_without_a_generation_may_commit_to_an_empty_group() -> None:
    """kafka-consumer-groups --reset-offsets does so."""
    coordinator = Coordinator()
    (leader,) = coordinator.stable_group()
    coordinator.leave(leader.member_id)
    assert coordinator.commit_code() == ErrorCode.NONE
    assert coordinator.commit_code(leader.member_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_is_a_sign_of_life() -> None:
    coordinator = Coordinator()
    (leader,) = coordinator.stable_group(session_timeout_ms=10_000)
    for _ in range(3):
        coordinator.pass_time(9_000)
        assert coordinator.commit_code(leader.member_id, 1) == ErrorCode.NONE
    coordinator.pass_time(10_000)
    assert coordinator.commit_code(leader.member_id, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_metadata_is_returned_as_given_and_limited_per_partition() -> None:
    coordinator = Coordinator(GroupConfig(classic_initial_rebalance_delay_ms=0, offset_metadata_max_bytes=10))
    coordinator.commit({("t", 0): 1}, metadata="0123456789")
    coordinator.commit({("t", 1): 1}, metadata=None)
    response = coordinator.commit({("t", 2): 1}, metadata="0123456789+")
    assert response.topics[0].partitions[0].error_code == ErrorCode.OFFSET_METADATA_TOO_LARGE
    fetched = coordinator.fetch({"t": [0, 1, 2]}).topics[0].partitions
    assert [(p.committed_offset, p.metadata) for p in fetched] == [(1, "0123456789"), (1, ""), (-1, "")]


def test_metadata_is_measured_in_utf_16_units() -> None:
    coordinator = Coordinator(GroupConfig(classic_initial_rebalance_delay_ms=0, offset_metadata_max_bytes=4))
    assert coordinator.commit_code(metadata="äöüß") == ErrorCode.NONE
    assert coordinator.commit_code(metadata="\U0001f600" * 3) == ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_a_refused_commit_does_not_make_a_group() -> None:
    coordinator = Coordinator()
    assert coordinator.commit_code(metadata="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert GROUP not in coordinator.core.shard.groups


def test_what_is_stored() -> None:
    coordinator = Coordinator()
    coordinator.commit({("t", 3): 42}, metadata="m", topic_ids={"t": OLD_ID})
    coordinator.commit({("t", 3): 43}, retention_ms=1_000, version=4)
    first, second = coordinator.records()
    assert first.key == OffsetCommitKey(group=GROUP, topic="t", partition=3)
    assert first.value_version == 4
    assert isinstance(first.value, OffsetCommitValue)
    assert (first.value.offset, first.value.metadata, first.value.topic_id) == (42, "m", OLD_ID)
    assert first.value.commit_timestamp == coordinator.now_ms
    assert second.value_version == 1
    assert isinstance(second.value, OffsetCommitValue)
    assert second.value.expire_timestamp == coordinator.now_ms + 1_000


# --- fetch ------------------------------------------------------------------------------------------------------------


def test_an_unknown_group_has_no_offsets_and_no_error() -> None:
    coordinator = Coordinator()
    response = coordinator.fetch({"t": [0]})
    assert response.error_code == ErrorCode.NONE
    partition = response.topics[0].partitions[0]
    assert (partition.committed_offset, partition.committed_leader_epoch, partition.metadata) == (-1, -1, "")
    assert coordinator.fetch(None).topics == []


def test_all_topics_are_fetched_with_the_ids_the_cluster_knows() -> None:
    topic = TopicImage("t", NEW_ID, {})
    coordinator = Coordinator(image=MetadataImage(topics_by_name={"t": topic}, topics_by_id={NEW_ID: topic}))
    coordinator.commit({("t", 0): 1, ("t", 1): 2, ("gone", 0): 3})
    topics = {topic.name: topic for topic in coordinator.fetch(None).topics}
    assert {name: topic.topic_id for name, topic in topics.items()} == {"t": NEW_ID, "gone": Uuid.ZERO}
    assert [(p.partition_index, p.committed_offset) for p in topics["t"].partitions] == [(0, 1), (1, 2)]


def test_offsets_of_an_earlier_topic_of_the_same_name_are_not_the_new_ones() -> None:
    coordinator = Coordinator()
    coordinator.commit({("t", 0): 7}, topic_ids={"t": OLD_ID})
    ids = {"old": OLD_ID, "new": NEW_ID, "none": Uuid.ZERO}
    found = {
        name: coordinator.fetch({"t": [0]}, topic_ids={"t": topic_id}).topics[0].partitions[0].committed_offset
        for name, topic_id in ids.items()
    }
    assert found == {"old": 7, "new": -1, "none": 7}


# --- delete -----------------------------------------------------------------------------------------------------------


def test_offsets_of_topics_nobody_consumes_can_be_deleted() -> None:
    coordinator = Coordinator()
    (leader,) = coordinator.stable_group(protocols=[("range", subscription("t"))])
    coordinator.commit({("t", 0): 1, ("u", 0): 2, ("u", 1): 3}, leader.member_id, 1)
    response = delete(coordinator, {"t": [0], "u": [0, 9]})
    assert response.error_code == ErrorCode.NONE
    codes = {topic.name: [p.error_code for p in topic.partitions] for topic in response.topics}
    assert codes == {"t": [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC], "u": [ErrorCode.NONE, ErrorCode.NONE]}
    coordinator.reload()
    assert [coordinator.committed(*key) for key in (("t", 0), ("u", 0), ("u", 1))] == [1, -1, 3]


def test_what_a_delete_of_offsets_is_refused_for() -> None:
    coordinator = Coordinator()
    assert delete(coordinator, {"t": [0]}).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete(coordinator, {"t": [0]}, group_id="").error_code == ErrorCode.INVALID_GROUP_ID
    coordinator.stable_group(protocol_type="connect")
    response = delete(coordinator, {"t": [0]})
    assert (response.error_code, response.topics) == (ErrorCode.NON_EMPTY_GROUP, [])


def test_a_group_whose_subscription_cannot_be_read_counts_as_subscribed_to_everything() -> None:
    coordinator = Coordinator()
    coordinator.stable_group(protocols=[("range", b"\xff")])
    codes = [p.error_code for p in delete(coordinator, {"t": [0]}).topics[0].partitions]
    assert codes == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_offsets_of_a_deleted_topic_are_removed_but_not_those_of_its_successor() -> None:
    coordinator = Coordinator()
    coordinator.commit({("t", 0): 1}, topic_ids={"t": OLD_ID})
    coordinator.commit({("t", 1): 2}, topic_ids={"t": NEW_ID})
    coordinator.commit({("t", 2): 3, ("u", 0): 4})
    coordinator.on_image(MetadataImage(), ImageDelta(deleted_topics=[TopicImage("t", OLD_ID, {})]))
    coordinator.reload()
    assert [coordinator.committed("t", index) for index in range(3)] == [-1, 2, -1]
    assert coordinator.committed("u", 0) == 4


# --- the log ----------------------------------------------------------------------------------------------------------


def test_keys_of_the_oldest_kafka_are_read() -> None:
    coordinator = Coordinator()
    key = LegacyOffsetCommitKey(group=GROUP, topic="t", partition=0)
    value = LegacyOffsetCommitValue(offset=9, metadata="m", commit_timestamp=1)
    coordinator.core.replay(CoordinatorRecord(key, value))
    assert coordinator.committed("t", 0) == 9
    coordinator.core.replay(tombstone(key))
    assert coordinator.committed("t", 0) == -1


def test_the_store_keeps_no_empty_maps() -> None:
    store = OffsetStore()
    store.put("g", "t", 0, CommittedOffset(1))
    store.put("g", "t", 1, CommittedOffset(2))
    assert store.remove("g", "t", 0)
    assert not store.remove("g", "t", 0)
    assert not store.remove("other", "t", 0)
    assert store.has_offsets("g")
    assert [len(store.remove_all("g")), store.has_offsets("g"), store.topics("g")] == [1, False, {}]


def test_an_offset_belongs_to_any_topic_of_its_name_where_an_id_is_missing() -> None:
    committed = CommittedOffset(1, topic_id=OLD_ID)
    assert [committed.belongs_to(topic_id) for topic_id in (OLD_ID, NEW_ID, Uuid.ZERO)] == [True, False, True]
    assert committed._replace(topic_id=Uuid.ZERO).belongs_to(NEW_ID)
