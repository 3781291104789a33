"""Where the replicas of new partitions go: evenly over brokers, and over racks before brokers.

Racks are visited in turn and the brokers within a rack in turn, so consecutive partitions get different
leaders, and a partition's replicas different racks as long as there are enough. A fenced broker may hold a
replica (it will come back) but never the first one, which leads. Where the rounds start is random, because
otherwise the first broker would lead partition 0 of every topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from controller.image import BrokerImage
from protocol.errors import ApiError, ErrorCode


class _Ring:
    """A shuffled list that is read round and round."""

    __slots__ = ("_members", "_next")

    def __init__(self, members: Iterable[int], random: Random) -> None:
        self._members = sorted(members)
        random.shuffle(self._members)
        self._next = 0

    def take(self, without: Sequence[int]) -> int | None:
        """The next member not in ``without``; None when all of them are."""
        for _ in range(len(self._members)):
            member = self._members[self._next]
            self._next = (self._next + 1) % len(self._members)
            if member not in without:
                return member
        return None


class _Rack:
    __slots__ = ("fenced", "unfenced")

    def __init__(self, brokers: list[BrokerImage], random: Random) -> None:
        self.unfenced = _Ring((broker.id for broker in brokers if not broker.fenced), random)
        self.fenced = _Ring((broker.id for broker in brokers if broker.fenced), random)


def place(
    partitions: int, replication_factor: int, brokers: Iterable[BrokerImage], random: Random
) -> list[tuple[int, ...]]:
    """The replicas of each new partition, the preferred leader first."""
    usable = [broker for broker in brokers if not _is_cordoned(broker)]
    _check(replication_factor, usable)
    by_rack: dict[str, list[BrokerImage]] = {}
    for broker in usable:
        by_rack.setdefault(broker.rack or "", []).append(broker)
    racks = [_Rack(by_rack[name], random) for name in sorted(by_rack)]
    random.shuffle(racks)
    start = random.randrange(len(racks))
    return [_place_one(replication_factor, racks, start + i) for i in range(partitions)]


def _place_one(replication_factor: int, racks: list[_Rack], start: int) -> tuple[int, ...]:
    order = [racks[(start + i) % len(racks)] for i in range(len(racks))]
    chosen: list[int] = []
    for i, rack in enumerate(order):
        leader = rack.unfenced.take(chosen)
        if leader is not None:
            chosen.append(leader)
            order = order[i + 1 :] + order[: i + 1]  # the next replica goes to the next rack
            break
    while len(chosen) < replication_factor:
        for rack in order:
            if len(chosen) == replication_factor:
                break
            member = rack.unfenced.take(chosen)
            if member is None:
                member = rack.fenced.take(chosen)
            if member is not None:
                chosen.append(member)
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


def _is_cordoned(broker: BrokerImage) -> bool:
    """All its log directories take no new partitions."""
    return bool(broker.cordoned_directories) and set(broker.directories) <= set(broker.cordoned_directories or ())
