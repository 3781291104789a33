"""What a silent member runs into: the end of its session, or of the time it was given for a step."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from broker.coordinator.effects import Effects
from broker.coordinator.group.base import ShardState
from broker.coordinator.group.config import clamped
from broker.coordinator.group.consumer.group import ConsumerGroup
from broker.coordinator.group.consumer.member import ConsumerMember
from controller.image import EMPTY, RESOURCE_GROUP

Fence = Callable[[int, ConsumerGroup, list[ConsumerMember]], Effects]


class Deadlines:
    """Each fences its member if that is still there. Keys begin with ("consumer", group_id)."""

    __slots__ = ("_shard", "fence")

    fence: Fence

    def __init__(self, shard: ShardState) -> None:
        self._shard = shard

    # --- settings of a group, within the broker's limits ------------------------------------------------------------

    def session_timeout_ms(self, group_id: str) -> int:
        config = self._shard.config
        return clamped(
            self._overrides(group_id),
            "consumer.session.timeout.ms",
            config.consumer_session_timeout_ms,
            config.consumer_min_session_timeout_ms,
            config.consumer_max_session_timeout_ms,
        )

    def heartbeat_interval_ms(self, group_id: str) -> int:
        config = self._shard.config
        return clamped(
            self._overrides(group_id),
            "consumer.heartbeat.interval.ms",
            config.consumer_heartbeat_interval_ms,
            config.consumer_min_heartbeat_interval_ms,
            config.consumer_max_heartbeat_interval_ms,
        )

    def assignment_interval_ms(self, group_id: str) -> int:
        config = self._shard.config
        return clamped(
            self._overrides(group_id),
            "consumer.assignment.interval.ms",
            config.consumer_assignment_interval_ms,
            config.consumer_min_assignment_interval_ms,
            config.consumer_max_assignment_interval_ms,
        )

    def _overrides(self, group_id: str) -> dict[str, str]:
        return dict(self._shard.image.configs.get((RESOURCE_GROUP, group_id), EMPTY))

    # --- deadlines --------------------------------------------------------------------------------------------------

    def schedule_session(self, now_ms: int, group_id: str, member_id: str, timeout_ms: int | None = None) -> None:
        """A heartbeat came. A member of the classic protocol has a session timeout of its own."""
        timeout_ms = self.session_timeout_ms(group_id) if timeout_ms is None else timeout_ms
        self._schedule(now_ms + timeout_ms, "session", group_id, member_id)

    def schedule_revocation(self, now_ms: int, group_id: str, member: ConsumerMember) -> None:
        """The member must give up partitions, and thereby leave its present epoch, within its rebalance timeout."""
        epoch = member.member_epoch
        deadline_ms = now_ms + member.rebalance_timeout_ms
        self._schedule(deadline_ms, "rebalance", group_id, member.member_id, only_at_epoch=epoch)

    def cancel_revocation(self, group_id: str, member_id: str) -> None:
        self._shard.timers.cancel(_key("rebalance", group_id, member_id))

    def schedule_join_if_absent(self, now_ms: int, group_id: str, member: ConsumerMember) -> None:
        """A member of the classic protocol was told to join again."""
        if _key("join", group_id, member.member_id) not in self._shard.timers:
            self._schedule(now_ms + member.rebalance_timeout_ms, "join", group_id, member.member_id)

    def cancel_join(self, group_id: str, member_id: str) -> None:
        self._shard.timers.cancel(_key("join", group_id, member_id))

    def schedule_sync(self, now_ms: int, group_id: str, member_id: str, timeout_ms: int) -> None:
        """A member of the classic protocol joined and owes the sync, with which it learns its assignment."""
        self._schedule(now_ms + timeout_ms, "sync", group_id, member_id)

    def cancel_sync(self, group_id: str, member_id: str) -> None:
        self._shard.timers.cancel(_key("sync", group_id, member_id))

    def _schedule(
        self, deadline_ms: int, kind: str, group_id: str, member_id: str, only_at_epoch: int | None = None
    ) -> None:
        def fire(now_ms: int) -> Effects:
            group = self._shard.find(group_id, ConsumerGroup)
            member = None if group is None else group.members.get(member_id)
            if group is None or member is None or only_at_epoch not in (None, member.member_epoch):
                return Effects()
            return self.fence(now_ms, group, [member])

        self._shard.timers.schedule(_key(kind, group_id, member_id), deadline_ms, fire)


def _key(kind: str, group_id: str, member_id: str) -> Hashable:
    return ("consumer", group_id, kind, member_id)
