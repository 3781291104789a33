"""What must hold of one partition of the replication simulation, checked wherever it could break.

An offset that any leader ever called committed holds one record for ever. Whoever the controller's metadata, as
committed, name as in sync or as eligible to lead has every committed record: looked at when more is committed, when a
replica truncates, and when the metadata change. A producer's records are in the log once and in order, where it was
told they are. What a reader was shown is committed, on whichever replica it read, and the end it was told never falls.

With unclean elections nothing of that can be promised; but in the end all replicas are equal again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.image import PartitionImage
from protocol.records import BatchHeader

if TYPE_CHECKING:
    from support.replication_model import Broker
    from support.replication_sim import ReplicationSim


def name_of(header: BatchHeader) -> str:
    return f"{header.producer_id}:{header.base_sequence}"


class History:
    def __init__(self, sim: ReplicationSim, index: int) -> None:
        self.sim = sim
        self.index = index
        self.committed: list[BatchHeader] = []
        self.acknowledged: dict[int, BatchHeader] = {}

    @property
    def image(self) -> PartitionImage:
        return self.sim.partition(self.index)

    # --- what happens

    def on_committed(self, leader: Broker, start: int, end: int) -> None:
        """The leader's high watermark went from `start` to `end`."""
        log = leader.log(self.index)
        assert log is not None
        values = log.values(start, end)
        known = self.committed[start:end]
        if self.sim.unclean:
            self.committed[start:end] = values
            return
        assert start <= len(self.committed), f"committed from {start} on, but nobody committed what is before"
        if values[: len(known)] != known:
            at = next(i for i, (new, old) in enumerate(zip(values, known, strict=False)) if new != old)
            raise AssertionError(
                f"offset {start + at} of partition {self.index} held {name_of(known[at])}, "
                f"now {name_of(values[at])} on broker {leader.id}"
            )
        first = len(self.committed)
        if end > first:
            self.committed += values[first - start :]
            self.check_members(first)

    def on_truncated(self, broker: Broker, offset: int) -> None:
        image = self.image
        if self.sim.unclean or offset >= len(self.committed) or self.index in broker.lost:
            return
        assert broker.id not in image.isr and broker.id not in image.elr, (
            f"broker {broker.id} truncated partition {self.index} to {offset}, below what is committed, "
            f"but it is in the ISR {image.isr} or eligible {image.elr}"
        )

    def on_metadata(self, before: PartitionImage, image: PartitionImage, restarted: set[int]) -> None:
        self.check_members(0)
        self._check_eligible(before, image, restarted)
        if image.leader >= 0 and image.leader not in image.isr:
            raise AssertionError(f"the leader of partition {self.index} is not in sync: {image}")

    def _check_eligible(self, before: PartitionImage, image: PartitionImage, restarted: set[int]) -> None:
        """Who leaves the ISR while too few are left to commit anything has all there is, and stays eligible. Not who
        tells of another disk: the controller takes it for empty, though it may have been in sync meanwhile."""
        is_one_step = image.partition_epoch == before.partition_epoch + 1
        if self.sim.unclean or not is_one_step or len(image.isr) >= min(self.sim.min_isr, len(image.replicas)):
            return
        complete = {*before.isr, *before.elr} & set(image.replicas)
        moved = {b for b in complete if before.directory_of(b) != image.directory_of(b)}
        gone = complete - {*image.isr, *image.elr} - restarted - moved
        assert not gone, f"brokers {gone} are not eligible to lead partition {self.index} any more: {before} -> {image}"

    def on_acknowledged(self, header: BatchHeader, offset: int) -> None:
        self.sim.counts["acknowledged"] += 1
        if self.sim.unclean:
            return
        assert offset < len(self.committed) and self.committed[offset] is header, (
            f"{name_of(header)} was acknowledged at {offset} of partition {self.index}, but is not committed there"
        )
        self.acknowledged[offset] = header

    def on_shown(self, broker: int, offset: int, header: BatchHeader) -> None:
        self.sim.counts["shown"] += 1
        assert self.sim.unclean or (offset < len(self.committed) and self.committed[offset] is header), (
            f"broker {broker} showed {name_of(header)} at {offset} of partition {self.index}, which is not committed"
        )

    # --- what holds

    def check_members(self, start: int) -> None:
        """All that was committed from `start` on is where the controller believes it to be."""
        if self.sim.unclean:
            return
        image = self.image
        end = len(self.committed)
        for member in (*image.isr, *image.elr):
            broker = self.sim.brokers[member]
            if self.index in broker.lost:
                continue
            log = broker.log(self.index)
            begin = start if log is None else max(start, log.log_start_offset)
            found = [] if log is None else log.values(begin, end)
            expected = self.committed[begin:] if begin else self.committed
            if found != expected:
                raise AssertionError(
                    f"broker {member} has {[name_of(one) for one in found][-5:]} up to {begin + len(found)} of "
                    f"partition {self.index}, committed is {[name_of(one) for one in expected][-5:]} up to {end}; "
                    f"but it is in the ISR {image.isr} or eligible {image.elr}"
                )

    def is_left_to_a_person(self) -> bool:
        """Nobody who lives has all records for certain: whoever is in sync, eligible, or led last is gone for good, or
        no replica any more."""
        image = self.image
        is_without = not (image.isr or image.elr or set(image.last_known_elr) & set(image.replicas))
        return image.leader < 0 and is_without and self.sim.counts["disks replaced"] > 0

    def why_not_settled(self) -> str | None:
        image = self.image
        if image.leader < 0:
            return f"nobody leads partition {self.index}: {image}"
        if image.adding_replicas or image.removing_replicas:
            return f"partition {self.index} still moves: {image}"
        if set(image.isr) != set(image.replicas):
            return f"partition {self.index} is not in sync: {image}"
        return None

    def why_not_level(self) -> str | None:
        """When nothing is in flight any more, all is committed, and every replica knows."""
        why_not = self.why_not_settled()
        if why_not is not None:
            return why_not
        image = self.image
        leader = self.sim.brokers[image.leader].replicas.get(self.index)
        if leader is None:
            return f"broker {image.leader} does not know that it leads partition {self.index}"
        for member in image.replicas:
            replica = self.sim.brokers[member].replicas.get(self.index)
            if replica is None:
                return f"broker {member} does not have its replica of partition {self.index}"
            log = replica.log
            if not log.high_watermark == log.log_end_offset == leader.log.log_end_offset:
                return (
                    f"broker {member} has partition {self.index} up to {log.log_end_offset} and committed up to "
                    f"{log.high_watermark}, its leader has {leader.log.log_end_offset}"
                )
        return None

    def check_end(self) -> None:
        image = self.image
        leader = self.sim.brokers[image.leader].replicas[self.index].log
        for member in image.replicas:
            log = self.sim.brokers[member].replicas[self.index].log
            start = max(log.log_start_offset, leader.log_start_offset)
            assert log.entries[start:] == leader.entries[start:], (
                f"broker {member} and the leader of partition {self.index} differ"
            )
        if self.sim.unclean:
            return
        start = leader.log_start_offset
        assert leader.values(start, leader.log_end_offset) == self.committed[start:]
        for offset, header in self.acknowledged.items():
            assert self.committed[offset] is header, f"{name_of(header)} at {offset} was acknowledged and is lost"
        for offset, header in enumerate(self.committed):
            assert header.base_sequence == offset, (
                f"producer {header.producer_id} has {header.base_sequence} at {offset} of partition {self.index}: "
                "a duplicate, a gap, or another order"
            )

    def check_somebody_has_everything(self) -> None:
        """What a person has to choose from."""
        if self.sim.unclean:
            return
        logs = [log for broker in self.sim.brokers.values() if (log := broker.log(self.index)) is not None]
        end = len(self.committed)
        whole = (log.values(at := log.log_start_offset, end) == self.committed[at:] for log in logs)
        assert any(whole), f"committed records of partition {self.index} are on no disk"
