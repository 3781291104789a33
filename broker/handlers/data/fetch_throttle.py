"""A follower's fetch where the leader's replication throttle (KIP-73) has a say."""

from __future__ import annotations

from broker.partition import Partition
from broker.replication.cluster import monotonic_ms
from broker.replication.throttle import ReplicationQuota


class FetchThrottle:
    """Made by the first throttled partition of a fetch that has records; most fetches have none.

    The quota is asked once per look at the partitions, and what goes out is counted when it does: a quota with room
    lets a whole response through, however small the rate is. That may be paid for with a longer pause.
    """

    __slots__ = ("_is_exceeded", "_quota", "_size", "held")

    def __init__(self, quota: ReplicationQuota) -> None:
        self._quota = quota
        self.held: set[Partition] = set()
        """Partitions that were left out of the answers."""
        self.restart()

    def restart(self) -> None:
        """Before another look."""
        self.held.clear()
        self._size = 0
        self._is_exceeded: bool | None = None

    def may_send(self, partition: Partition, replica_id: int, size: int) -> bool:
        """A follower in sync is never held, or producers would be held with it; but it counts."""
        if not partition.is_in_sync(replica_id):
            if self._is_exceeded is None:
                self._is_exceeded = self._quota.is_exceeded(monotonic_ms())
            if self._is_exceeded:
                self.held.add(partition)
                return False
        self._size += size
        return True

    def on_sent(self) -> None:
        if self._size:
            self._quota.record(monotonic_ms(), self._size)

    def delay_ms(self) -> int:
        """When another look is worth it."""
        now = monotonic_ms()
        return max(1, self._quota.allowed_at_ms(now) - now)
