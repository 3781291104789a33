"""Expiration of offsets and groups (KIP-211)."""

from __future__ import annotations

from support.classic_groups import GROUP, Coordinator, subscription

from broker.coordinator.group.config import GroupConfig
from protocol.coordinator.group_metadata import GroupMetadataKey
from protocol.coordinator.offset_commit import OffsetCommitKey

RETENTION_MS = 100_000
CHECK_MS = 10_000
CONFIG = GroupConfig(
    classic_initial_rebalance_delay_ms=0,
    offsets_retention_ms=RETENTION_MS,
    offsets_retention_check_interval_ms=CHECK_MS,
)


def _heartbeats(coordinator: Coordinator, member_id: str, duration_ms: int) -> None:
    for _ in range(duration_ms // 5_000):
        coordinator.pass_time(5_000)
        assert coordinator.heartbeat(member_id, 1) == 0


def test_offsets_of_a_simple_consumer_age_from_their_own_commit() -> None:
    coordinator = Coordinator(CONFIG)
    coordinator.commit({("t", 0): 1})
    coordinator.pass_time(50_000)
    coordinator.commit({("t", 1): 2})
    coordinator.pass_time(50_000)
    assert [coordinator.committed("t", index) for index in range(2)] == [-1, 2]
    assert GROUP in coordinator.core.shard.groups
    coordinator.pass_time(50_000)
    assert GROUP not in coordinator.core.shard.groups
    assert [record.value for record in coordinator.records()[-2:]] == [None, None]
    assert isinstance(coordinator.records()[-2].key, OffsetCommitKey)
    assert isinstance(coordinator.records()[-1].key, GroupMetadataKey)
    coordinator.reload()
    assert GROUP not in coordinator.core.shard.groups


def test_offsets_of_a_group_age_from_when_it_became_empty() -> None:
    coordinator = Coordinator(CONFIG)
    (leader,) = coordinator.stable_group(protocols=[("range", subscription("t"))])
    coordinator.commit({("t", 0): 1}, leader.member_id, 1)
    _heartbeats(coordinator, leader.member_id, 300_000)
    assert coordinator.committed("t", 0) == 1
    coordinator.leave(leader.member_id)
    coordinator.pass_time(RETENTION_MS - 1)
    assert coordinator.committed("t", 0) == 1
    coordinator.pass_time(CHECK_MS)
    assert coordinator.committed("t", 0) == -1
    assert GROUP not in coordinator.core.shard.groups


def test_a_takeover_does_not_make_offsets_young_again() -> None:
    coordinator = Coordinator(CONFIG)
    (leader,) = coordinator.stable_group(protocols=[("range", subscription("t"))])
    coordinator.commit({("t", 0): 1}, leader.member_id, 1)
    coordinator.leave(leader.member_id)
    coordinator.pass_time(60_000)
    coordinator.reload()
    coordinator.pass_time(50_000)
    assert coordinator.committed("t", 0) == -1


def test_in_a_stable_group_only_topics_without_a_subscriber_expire() -> None:
    coordinator = Coordinator(CONFIG)
    (leader,) = coordinator.stable_group(protocols=[("range", subscription("t"))])
    coordinator.commit({("t", 0): 1, ("formerly", 0): 2}, leader.member_id, 1)
    _heartbeats(coordinator, leader.member_id, RETENTION_MS + CHECK_MS)
    assert coordinator.committed("t", 0) == 1
    assert coordinator.committed("formerly", 0) == -1


def test_offsets_of_other_protocol_types_stay_while_there_are_members() -> None:
    coordinator = Coordinator(CONFIG)
    (worker,) = coordinator.stable_group(protocol_type="connect")
    coordinator.commit({("t", 0): 1}, worker.member_id, 1)
    _heartbeats(coordinator, worker.member_id, RETENTION_MS + CHECK_MS)
    assert coordinator.committed("t", 0) == 1


def test_a_commits_own_retention_time_wins() -> None:
    coordinator = Coordinator(CONFIG)
    coordinator.commit({("t", 0): 1}, retention_ms=15_000, version=4)
    coordinator.commit({("t", 1): 2}, retention_ms=500_000, version=4)
    coordinator.reload()
    coordinator.pass_time(20_000)
    assert [coordinator.committed("t", index) for index in range(2)] == [-1, 2]
    coordinator.pass_time(RETENTION_MS)
    assert coordinator.committed("t", 1) == 2


def test_an_empty_group_without_offsets_is_removed_at_the_next_check() -> None:
    coordinator = Coordinator(CONFIG)
    (leader,) = coordinator.stable_group()
    coordinator.leave(leader.member_id)
    coordinator.pass_time(CHECK_MS)
    assert GROUP not in coordinator.core.shard.groups
    last = coordinator.records()[-1]
    assert (last.key, last.value) == (GroupMetadataKey(group=GROUP), None)


def test_a_group_with_members_is_never_removed() -> None:
    coordinator = Coordinator(CONFIG)
    (leader,) = coordinator.stable_group()
    _heartbeats(coordinator, leader.member_id, 2 * CHECK_MS)
    assert GROUP in coordinator.core.shard.groups
