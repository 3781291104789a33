"""What the partitions of this broker know of the others, and how they tell the controller of a change."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from controller.image import MetadataImage

if TYPE_CHECKING:
    from broker.partition import Partition
    from broker.replication.leader import IsrChange


def monotonic_ms() -> int:
    """Lag is a matter of durations: a wall clock that is set must not throw followers out of the ISR."""
    return time.monotonic_ns() // 1_000_000


class TellsController(Protocol):
    def submit(self, partition: Partition, change: IsrChange) -> None: ...


class ClusterView:
    """Owned by the replica manager. `eligible` holds the brokers that may join an ISR, with their epochs."""

    __slots__ = ("_broker_epoch", "clock", "eligible", "isr_updates", "lag_max_ms")

    def __init__(
        self,
        lag_max_ms: int,
        isr_updates: TellsController,
        broker_epoch: Callable[[], int],
        clock: Callable[[], int] = monotonic_ms,
    ) -> None:
        self.lag_max_ms = lag_max_ms
        self.isr_updates = isr_updates
        self.clock = clock
        self.eligible: dict[int, int] = {}
        self._broker_epoch = broker_epoch

    @property
    def broker_epoch(self) -> int:
        return self._broker_epoch()

    def on_brokers(self, image: MetadataImage) -> None:
        self.eligible = {broker.id: broker.epoch for broker in image.brokers.values() if broker.is_active}
