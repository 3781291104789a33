"""The consumer groups of one shard: the door to all of this package."""

from __future__ import annotations

from collections.abc import Sequence

from broker.coordinator.effects import Effects
from broker.coordinator.group.base import Client, ShardState
from broker.coordinator.group.classic.manager import ClassicGroups
from broker.coordinator.group.consumer.classic_members import ClassicMembers
from broker.coordinator.group.consumer.deadlines import Deadlines
from broker.coordinator.group.consumer.describe import describe_group
from broker.coordinator.group.consumer.group import ConsumerGroup
from broker.coordinator.group.consumer.heartbeat import Heartbeats
from broker.coordinator.group.consumer.leaving import Leaving
from broker.coordinator.group.consumer.member import MemberState
from broker.coordinator.group.consumer.metadata_hash import MetadataHashes
from broker.coordinator.group.consumer.migration import Migration
from broker.coordinator.group.consumer.regexes import Regexes
from broker.coordinator.group.consumer.replay import replay
from broker.coordinator.group.consumer.steps import Steps
from broker.coordinator.records import CoordinatorRecord
from controller.image import ImageDelta
from protocol.messages.consumer_group_describe import DescribedGroup
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.sync_group import SyncGroupRequest


class ConsumerGroups:
    __slots__ = ("_classic_members", "_deadlines", "_hashes", "_heartbeats", "_regexes", "_shard")

    def __init__(self, shard: ShardState, classic: ClassicGroups) -> None:
        self._shard = shard
        self._hashes = MetadataHashes()
        self._deadlines = Deadlines(shard)
        self._regexes = Regexes(shard, self._hashes)
        migration = Migration(shard, classic, self._hashes)
        steps = Steps(shard, self._hashes, self._deadlines)
        leaving = Leaving(shard, self._hashes, self._regexes, migration)
        self._deadlines.fence = leaving.fence
        self._heartbeats = Heartbeats(shard, classic, steps, self._regexes, migration, leaving, self._deadlines)
        self._classic_members = ClassicMembers(shard, steps, self._regexes, migration, leaving, self._deadlines)

    # --- requests ---------------------------------------------------------------------------------------------------

    def heartbeat(self, now_ms: int, token: object, request: ConsumerGroupHeartbeatRequest, client: Client) -> Effects:
        return self._heartbeats.heartbeat(now_ms, token, request, client)

    def describe(self, group_ids: Sequence[str]) -> list[DescribedGroup]:
        return [describe_group(self._shard, group_id) for group_id in group_ids]

    def classic_join(self, now_ms: int, token: object, request: JoinGroupRequest, client: Client) -> Effects:
        return self._classic_members.join(now_ms, token, request, client)

    def classic_sync(self, now_ms: int, token: object, request: SyncGroupRequest, client: Client) -> Effects:
        return self._classic_members.sync(now_ms, token, request, client)

    def classic_heartbeat(self, now_ms: int, token: object, request: HeartbeatRequest, client: Client) -> Effects:
        return self._classic_members.heartbeat(now_ms, token, request, client)

    def classic_leave(self, now_ms: int, token: object, request: LeaveGroupRequest, client: Client) -> Effects:
        return self._classic_members.leave(now_ms, token, request, client)

    # --- metadata ---------------------------------------------------------------------------------------------------

    def on_image(self, now_ms: int, delta: ImageDelta) -> Effects:
        """Groups of changed or deleted topics look at them anew with their next heartbeat, which is soon.

        Only a member that hears of a new epoch can act on it, so nothing is gained by making it earlier.
        """
        self._regexes.on_image(delta)
        changed = delta.changed_topics | delta.created_topics | {topic.name for topic in delta.deleted_topics}
        for topic in changed:
            self._hashes.forget(topic)
        for group in self._shard.groups.values():
            if isinstance(group, ConsumerGroup) and not changed.isdisjoint(group.subscriptions):
                group.request_refresh()
        return Effects()

    # --- the log ----------------------------------------------------------------------------------------------------

    def replay(self, record: CoordinatorRecord) -> None:
        replay(self._shard, record)

    def on_loaded(self, now_ms: int) -> Effects:
        """Every member has a whole session, and for an owed revocation a whole timeout, to find its coordinator."""
        self._regexes.on_loaded()
        for group in self._shard.groups.values():
            if not isinstance(group, ConsumerGroup):
                continue
            for member in group.members.values():
                self._deadlines.schedule_session(now_ms, group.group_id, member.member_id)
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    self._deadlines.schedule_revocation(now_ms, group.group_id, member)
        return Effects()
