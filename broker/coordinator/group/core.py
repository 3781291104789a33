"""The group coordinator of one shard: every request of the group APIs enters here.

Each request takes the time, a token that comes back with its Reply, the decoded request and who sent it. Reads return
their answer at once. The shell has already authorised the request, checked that this shard owns the group, and (for
offsets) resolved topic ids to names and answered for topics and partitions that do not exist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker.coordinator.effects import Effects
from broker.coordinator.group import admin
from broker.coordinator.group.base import Client, ConsumerPart, GroupType, ShardState
from broker.coordinator.group.classic.manager import ClassicGroups
from broker.coordinator.group.config import GroupConfig
from broker.coordinator.group.consumer.manager import ConsumerGroups
from broker.coordinator.group.expiration import Expiration
from broker.coordinator.group.offset_requests import OffsetRequests
from broker.coordinator.group.offsets import OffsetStore
from broker.coordinator.records import CoordinatorRecord
from controller.image import ImageDelta, MetadataImage
from protocol.coordinator.group_metadata import GroupMetadataKey
from protocol.coordinator.legacy_offset_commit import LegacyOffsetCommitKey
from protocol.coordinator.offset_commit import OffsetCommitKey
from protocol.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.describe_groups import DescribedGroup
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.leave_group import LeaveGroupRequest
from protocol.messages.list_groups import ListedGroup
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_delete import OffsetDeleteRequest
from protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from protocol.messages.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    import random

__all__ = ["Client", "GroupCoordinator"]


class GroupCoordinator:
    """Owns all groups and offsets of one partition of `__consumer_offsets`.

    Error answers are ordinary responses; an exception out of here is a bug of ours. Deterministic: the same inputs,
    times, rng seed and ids give the same effects.
    """

    __slots__ = ("_classic", "_consumer", "_expiration", "_offset_requests", "shard")

    def __init__(
        self, config: GroupConfig, image: MetadataImage, rng: random.Random, new_id: Callable[[], str]
    ) -> None:
        self.shard = ShardState(config, image, rng, new_id)
        self.shard.offsets = OffsetStore()
        self._classic = ClassicGroups(self.shard)
        self._consumer: ConsumerPart = ConsumerGroups(self.shard, self._classic)
        self._offset_requests = OffsetRequests(self.shard, self._classic)
        self._expiration = Expiration(self.shard)

    # --- classic protocol -------------------------------------------------------------------------------------------

    def join_group(self, now_ms: int, token: object, request: JoinGroupRequest, client: Client) -> Effects:
        """Reply: JoinGroupResponse, possibly much later (when the rebalance completes)."""
        group = self.shard.groups.get(request.group_id)
        if group is not None and group.group_type is GroupType.CONSUMER and not group.is_empty():
            refused = self._classic.refuse_join(request, client)
            if refused is not None:
                return Effects.reply(token, refused)
            return self._consumer.classic_join(now_ms, token, request, client)
        return self._classic.join(now_ms, token, request, client)

    def sync_group(self, now_ms: int, token: object, request: SyncGroupRequest, client: Client) -> Effects:
        """Reply: SyncGroupResponse, possibly later (when the leader brings the assignment)."""
        if self._is_consumer_group(request.group_id):
            return self._consumer.classic_sync(now_ms, token, request, client)
        return self._classic.sync(now_ms, token, request, client)

    def heartbeat(self, now_ms: int, token: object, request: HeartbeatRequest, client: Client) -> Effects:
        """Reply: HeartbeatResponse."""
        if self._is_consumer_group(request.group_id):
            return self._consumer.classic_heartbeat(now_ms, token, request, client)
        return self._classic.heartbeat(now_ms, token, request)

    def leave_group(self, now_ms: int, token: object, request: LeaveGroupRequest, client: Client) -> Effects:
        """Reply: LeaveGroupResponse."""
        if self._is_consumer_group(request.group_id):
            return self._consumer.classic_leave(now_ms, token, request, client)
        return self._classic.leave(now_ms, token, request, client)

    # --- consumer protocol (KIP-848) --------------------------------------------------------------------------------

    def consumer_group_heartbeat(
        self, now_ms: int, token: object, request: ConsumerGroupHeartbeatRequest, client: Client
    ) -> Effects:
        """Reply: ConsumerGroupHeartbeatResponse."""
        return self._consumer.heartbeat(now_ms, token, request, client)

    def consumer_group_describe(self, group_ids: Sequence[str]) -> list[DescribedConsumerGroup]:
        """One answer per id, in order. Authorized operations are the handler's to fill in."""
        return self._consumer.describe(group_ids)

    # --- offsets ----------------------------------------------------------------------------------------------------

    def offset_commit(self, now_ms: int, token: object, request: OffsetCommitRequest, client: Client) -> Effects:
        """Reply: OffsetCommitResponse for the topics of the request, each of which carries its name AND topic id."""
        return self._offset_requests.commit(now_ms, token, request, client)

    def offset_fetch(
        self, now_ms: int, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        """One group of an OffsetFetch of any version; topics carry name AND topic id (null: all topics).

        The handler turns v1-7 into this shape and back, and answers for ids it cannot resolve. For null topics the
        answer holds every topic with offsets, by name, with the id the image knows (zero where it knows none).
        """
        return self._offset_requests.fetch(now_ms, request, require_stable=require_stable)

    def offset_delete(self, now_ms: int, token: object, request: OffsetDeleteRequest) -> Effects:
        """Reply: OffsetDeleteResponse for the topics of the request (the handler answers for missing topics)."""
        return self._offset_requests.delete(now_ms, token, request)

    # --- administration ---------------------------------------------------------------------------------------------

    def describe_groups(self, group_ids: Sequence[str], client: Client) -> list[DescribedGroup]:
        """One answer per id, in order: "Dead" for a group that is not there (v6: GROUP_ID_NOT_FOUND)."""
        return [admin.describe_group(self.shard, group_id, client.api_version) for group_id in group_ids]

    def list_groups(self, states_filter: Sequence[str], types_filter: Sequence[str]) -> list[ListedGroup]:
        """The groups of this shard; empty filters let everything through."""
        return admin.list_groups(self.shard, states_filter, types_filter)

    def delete_groups(self, now_ms: int, token: object, group_ids: Sequence[str]) -> Effects:
        """Reply: list[DeletableGroupResult], one per id, in order."""
        return admin.delete_groups(self.shard, token, group_ids)

    # --- metadata, time, loading ------------------------------------------------------------------------------------

    def on_image(self, now_ms: int, image: MetadataImage, delta: ImageDelta) -> Effects:
        """Topics changed: consumer groups rebalance, offsets of deleted topics are removed."""
        self.shard.image = image
        effects = self._offset_requests.on_topics_deleted(delta.deleted_topics)
        return effects.extend(self._consumer.on_image(now_ms, delta))

    @property
    def next_deadline_ms(self) -> int | None:
        return self.shard.timers.next_deadline_ms

    def tick(self, now_ms: int) -> Effects:
        """Fires what is due: session and rebalance timeouts, the initial delay, expiration of offsets."""
        return self.shard.timers.run_due(now_ms)

    def on_standstill(self, duration_ms: int) -> None:
        """Time did not count for so long: sessions and rebalances go on where they stood."""
        self.shard.timers.postpone(duration_ms)

    def replay(self, record: CoordinatorRecord) -> None:
        """One record of the log, in order, before on_loaded."""
        key = record.key
        if isinstance(key, OffsetCommitKey):
            self._offset_requests.replay(key, record.value)
        elif isinstance(key, GroupMetadataKey):
            self._classic.replay(key, record.value)
        elif isinstance(key, LegacyOffsetCommitKey):
            self._offset_requests.replay_legacy(key, record.value)
        else:
            self._consumer.replay(record)

    def on_loaded(self, now_ms: int) -> Effects:
        """After the last replayed record: session timers start anew, groups grown too large are rebalanced."""
        self._expiration.start(now_ms)
        return self._classic.on_loaded(now_ms).extend(self._consumer.on_loaded(now_ms))

    def on_cancel(self, token: object) -> None:
        """The connection of a waiting JoinGroup or SyncGroup went away.

        Nothing is undone: as in Kafka, the member lives until its session or the rebalance times out, and its reply
        is simply dropped by the shell.
        """

    def _is_consumer_group(self, group_id: str) -> bool:
        group = self.shard.groups.get(group_id)
        return group is not None and group.group_type is GroupType.CONSUMER
