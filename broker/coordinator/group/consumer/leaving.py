"""Members go: by their own wish, or because they were silent for too long."""

from __future__ import annotations

from broker.coordinator.effects import Effects
from broker.coordinator.group.base import ShardState
from broker.coordinator.group.consumer import group_records
from broker.coordinator.group.consumer.group import ConsumerGroup
from broker.coordinator.group.consumer.group_records import Records
from broker.coordinator.group.consumer.member import ConsumerMember
from broker.coordinator.group.consumer.metadata_hash import MetadataHashes
from broker.coordinator.group.consumer.migration import Migration
from broker.coordinator.group.consumer.regexes import Regexes
from broker.coordinator.group.consumer.replay import replay


class Leaving:
    __slots__ = ("_hashes", "_migration", "_regexes", "_shard")

    def __init__(self, shard: ShardState, hashes: MetadataHashes, regexes: Regexes, migration: Migration) -> None:
        self._shard = shard
        self._hashes = hashes
        self._regexes = regexes
        self._migration = migration

    def fence(self, now_ms: int, group: ConsumerGroup, members: list[ConsumerMember]) -> Effects:
        """Removes the members and makes a new group epoch, at which those that stay are given their partitions.

        If only members of the classic protocol stay, the group becomes a classic one.
        """
        if not members:
            return Effects()
        if self._migration.can_downgrade_without(group, members):
            return self._migration.downgrade(now_ms, group, members, None, rebalance=True)
        records: Records = []
        for member in members:
            records.extend(group_records.removal(group.group_id, member.member_id))
        unused = self._regexes.drop_unused(group, members, records)
        subscriptions = group.subscriptions_without(members, unused)
        metadata_hash = self._hashes.group_hash(subscriptions, self._shard.image)
        records.append(group_records.epoch_record(group.group_id, group.group_epoch + 1, metadata_hash))
        for record in records:
            replay(self._shard, record)
        for member in members:
            group.cancel_timers(member.member_id)
        return Effects(records=records)
