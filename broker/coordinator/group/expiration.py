"""Expiration of offsets, and of groups that have neither members nor offsets (KIP-211)."""

from __future__ import annotations

from broker.coordinator.effects import Effects
from broker.coordinator.group.base import Group, ShardState
from broker.coordinator.group.offsets import offset_tombstone

TIMER_KEY = ("expiration",)


class Expiration:
    """Looks at every group each `offsets.retention.check.interval.ms`."""

    __slots__ = ("_shard",)

    def __init__(self, shard: ShardState) -> None:
        self._shard = shard

    def start(self, now_ms: int) -> None:
        interval_ms = self._shard.config.offsets_retention_check_interval_ms
        self._shard.timers.schedule(TIMER_KEY, now_ms + interval_ms, self._run)

    def _run(self, now_ms: int) -> Effects:
        effects = Effects()
        for group in list(self._shard.groups.values()):
            self._expire_offsets(now_ms, group, effects)
            if group.is_empty() and not self._shard.offsets.has_offsets(group.group_id):
                effects.records.extend(group.tombstones())
                self._shard.drop(group.group_id)
        self.start(now_ms)
        return effects

    def _expire_offsets(self, now_ms: int, group: Group, effects: Effects) -> None:
        expiration = group.expiration_base()
        if expiration is None:
            return
        offsets = self._shard.offsets
        retention_ms = self._shard.config.offsets_retention_ms
        expired = [
            (topic, partition)
            for topic, partitions in offsets.topics(group.group_id).items()
            if not group.is_subscribed_to(topic)
            for partition, committed in partitions.items()
            if committed.is_expired(now_ms, expiration.base_ms, retention_ms)
        ]
        for topic, partition in expired:
            offsets.remove(group.group_id, topic, partition)
            effects.records.append(offset_tombstone(group.group_id, topic, partition))
