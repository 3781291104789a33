"""Where the replicas of new partitions go: evenly over brokers, and over racks before brokers. Kafka's striped placer.

A stripe gives each unfenced broker the lead of about one partition. Racks are visited in turn, each partition starting
one rack further, and within a rack its brokers in turn, so a partition's replicas are in different racks as long as
there are enough. After each stripe racks and brokers are shuffled: otherwise the same brokers would meet in partition
after partition, and when one fails, the same other would take over all it led. A fenced broker may hold a replica (it
will come back), but only when no unfenced one is left in its rack, and never the first one, which leads.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from controller.image import BrokerImage
from protocol.errors import ApiError, ErrorCode


class _Brokers:
    """Brokers of one rack, handed out each at most once per partition; the next partition starts one further."""

    __slots__ = ("_ids", "_offset", "_partition", "_taken")

    def __init__(self, ids: Iterable[int], random: Random) -> None:
        self._ids = sorted(ids)
        self._offset = random.randrange(len(self._ids)) if self._ids else 0
        self._partition = 0
        self._taken = 0

    def shuffle(self, random: Random) -> None:
        random.shuffle(self._ids)

    def take(self, partition: int) -> int | None:
        """The next broker for the stripe's ``partition``; None when all of them were taken."""
        size = len(self._ids)
        if size == 0:
            return None
        if partition != self._partition:
            self._partition, self._taken = partition, 0
            self._offset = (self._offset + 1) % size
        if self._taken >= size:
            return None
        self._taken += 1
        return self._ids[(self._taken - 1 + self._offset) % size]


class _Rack:
    __slots__ = ("fenced", "unfenced")

    def __init__(self, brokers: list[BrokerImage], random: Random) -> None:
        self.fenced = _Brokers((broker.id for broker in brokers if broker.fenced), random)
        self.unfenced = _Brokers((broker.id for broker in brokers if not broker.fenced), random)

    def shuffle(self, random: Random) -> None:
        self.fenced.shuffle(random)
        self.unfenced.shuffle(random)

    def take(self, partition: int) -> int | None:
        broker = self.unfenced.take(partition)
        return self.fenced.take(partition) if broker is None else broker


def place(
    partitions: int, replication_factor: int, brokers: Iterable[BrokerImage], random: Random
) -> list[tuple[int, ...]]:
    """The replicas of each new partition, the preferred leader first."""
    usable = [broker for broker in brokers if _is_usable(broker)]
    _check(replication_factor, usable)
    by_rack: dict[tuple[bool, str], list[BrokerImage]] = {}
    for broker in usable:
        by_rack.setdefault((broker.rack is not None, broker.rack or ""), []).append(broker)
    racks = [_Rack(by_rack[name], random) for name in sorted(by_rack)]
    order = list(racks)
    start = random.randrange(len(order))
    stripe = sum(not broker.fenced for broker in usable)
    placed = []
    partition = 0
    for _ in range(partitions):
        if partition == stripe and stripe > 1:
            random.shuffle(order)
            for rack in racks:
                rack.shuffle(random)
            partition = 0
        start %= len(order)
        placed.append(_place_one(replication_factor, order, start, partition))
        partition += 1
        start += 1
    return placed


def _place_one(replication_factor: int, order: list[_Rack], start: int, partition: int) -> tuple[int, ...]:
    """The leader from the first rack that has one; the followers from the racks in turn, the leader's once left out."""
    leading = start
    while (leader := order[leading].unfenced.take(partition)) is None:
        leading = (leading + 1) % len(order)
    chosen = [leader]
    skipped: int | None = leading
    at = start
    while len(chosen) < replication_factor:
        if at == skipped:
            skipped = None
        else:
            broker = order[at].take(partition)
            if broker is not None:
                chosen.append(broker)
        at = (at + 1) % len(order)
    return tuple(chosen)


def _check(replication_factor: int, usable: list[BrokerImage]) -> None:
    """Afterwards there is an unfenced broker to lead and one for every replica, so placing terminates."""
    reason = None
    if replication_factor > len(usable):
        reason = (
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(usable)} broker(s) are registered or some brokers have all their log directories cordoned."
        )
    elif all(broker.fenced for broker in usable):
        reason = "All brokers are currently fenced, or have all their log directories cordoned."
    if reason is not None:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): {reason}",
        )


def _is_usable(broker: BrokerImage) -> bool:
    """Not one that is leaving, nor one whose log directories all take no new partitions (KIP-1066)."""
    leaving = broker.in_controlled_shutdown and not broker.fenced
    cordoned = bool(broker.cordoned_directories) and set(broker.directories) <= set(broker.cordoned_directories or ())
    return not leaving and not cordoned
