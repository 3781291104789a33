"""Brokers that replicate one partition, simulated from a seed: the product's leader, follower and controller cores.

Logs are lists, the network is a heap of deliveries, time is a number. Messages between brokers may be lost or late; the
metadata reaches every broker in order, but each in its own time. What is done to the brokers is in
`replication_sim_faults`.

Checked after every event: an offset that any leader ever called committed holds one value for ever; a leader elected by
the controller has every committed record; so has every member of the controller's ISR, and whoever it calls eligible
to lead. With unclean elections nothing of that can be promised; but in the end all replicas are equal again.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from support.metadata import broker_record, cluster, node_config
from support.partitions import only_partition, with_partition
from support.replication_model import LAG_MAX_MS, Broker
from support.replication_sim_faults import CONTROLLER, ReplicationFaults

from broker.replication.leader import IsrChange, IsrResult
from controller.alter_partition import alter_partition
from controller.delta import apply_records
from controller.image import MetadataImage
from protocol.errors import ApiError, ErrorCode
from protocol.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from protocol.metadata.config_record import ConfigRecord

BROKERS = (1, 2, 3, 4)
REPLICAS = 3


class ReplicationSim:
    def __init__(self, seed: int, directory: Path, *, unclean: bool = False) -> None:
        self.rng = Random(seed)
        self.unclean = unclean
        self.now = 0
        self.counts: Counter[str] = Counter()
        self.min_isr = self.rng.choice((1, 2, 2))
        self.loss = self.rng.choice((0.0, 0.02, 0.1))
        self.committed: dict[int, str] = {}
        self.acknowledged: dict[int, str] = {}
        self._heap: list[tuple[int, int, Broker | None, int, Callable[[], None]]] = []
        self._order = count()
        self._values = count()
        self.cut: set[tuple[int, int]] = set()
        self.config = node_config(directory)
        records = [
            ConfigRecord(resource_type=2, resource_name="t", name="min.insync.replicas", value=str(self.min_isr))
        ]
        if unclean:
            name = "unclean.leader.election.enable"
            records.append(ConfigRecord(resource_type=2, resource_name="t", name=name, value="true"))
        replicas = self.rng.sample(BROKERS, REPLICAS)
        self.image = with_partition(cluster(*(broker_record(b) for b in BROKERS)), *replicas)
        self.image, _ = apply_records(self.image, records, offset=1_000, epoch=1)  # broker epochs are offsets
        self.brokers = {broker_id: Broker(self, broker_id) for broker_id in BROKERS}
        self.faults = ReplicationFaults(self)
        for broker in self.brokers.values():
            broker.on_image(self.image)
            self.after(self.rng.randint(1, LAG_MAX_MS), broker, broker.check_lag)

    # time and messages

    def after(self, delay_ms: int, broker: Broker | None, what: Callable[[], None]) -> None:
        life = -1 if broker is None else broker.life
        heapq.heappush(self._heap, (self.now + delay_ms, next(self._order), broker, life, what))

    def soon(self, broker: Broker, what: Callable[[], None]) -> None:
        self.after(0, broker, what)

    def message(self, source: Broker, target: Broker, deliver: Callable[[], None]) -> None:
        if self.rng.random() < self.loss or (source.id, target.id) in self.cut:
            return
        self.after(self.rng.choice((1, 1, 2, 5, 40)), target, deliver)

    def step(self) -> bool:
        """One event; False when nothing is left."""
        while self._heap:
            due, _, broker, life, what = heapq.heappop(self._heap)
            self.now = max(self.now, due)
            if broker is not None:
                if not broker.alive or broker.life != life:
                    continue
                if broker.paused:
                    heapq.heappush(self._heap, (self.now + 20, next(self._order), broker, life, what))
                    continue
            what()
            self.check()
            return True
        return False

    # the controller

    def change(self, records: list[Any]) -> None:
        if not records:
            return
        before = only_partition(self.image)
        self.image, _ = apply_records(self.image, records, offset=self.image.offset + len(records), epoch=1)
        after = only_partition(self.image)
        if after.leader != before.leader or after.leader_epoch != before.leader_epoch:
            self.counts["elections"] += 1
            if after.leader >= 0:
                self.check_leader(after.leader)
        for broker in self.brokers.values():
            image = self.image
            self.after(self.rng.choice((1, 3, 10, 60, 200)), broker, lambda b=broker, i=image: self.publish(b, i))

    def publish(self, broker: Broker, image: MetadataImage) -> None:
        """A broker fetches the metadata: both directions have to work."""
        if self.is_cut_off(broker):
            self.after(50, broker, lambda: self.publish(broker, image))
        else:
            broker.on_image(image)

    def is_cut_off(self, broker: Broker) -> bool:
        return (broker.id, CONTROLLER) in self.cut or (CONTROLLER, broker.id) in self.cut

    def to_controller(
        self, broker: Broker, change: IsrChange, answered: Callable[[IsrResult | ErrorCode], None]
    ) -> None:
        if self.rng.random() < self.loss or (broker.id, CONTROLLER) in self.cut:
            return
        delay = self.rng.choice((1, 5, 30, 150))
        self.after(delay, None, lambda: self.decide(broker, broker.life, broker.epoch, change, answered))

    def decide(
        self,
        broker: Broker,
        life: int,
        epoch: int,
        change: IsrChange,
        answered: Callable[[IsrResult | ErrorCode], None],
    ) -> None:
        topic = self.image.topics_by_name["t"]
        members = [BrokerState(broker_id=m.broker_id, broker_epoch=m.broker_epoch) for m in change.isr]
        part = PartitionData(
            partition_index=0,
            leader_epoch=change.leader_epoch,
            new_isr_with_epochs=members,
            partition_epoch=change.partition_epoch,
        )
        request = AlterPartitionRequest(
            broker_id=broker.id,
            broker_epoch=epoch,
            topics=[TopicData(topic_id=topic.topic_id, partitions=[part])],
        )
        try:
            outcome = alter_partition(self.image, request, config=self.config)
        except ApiError:
            return
        self.change(list(outcome.records))
        (answer,) = outcome.response.topics[0].partitions
        code = ErrorCode(answer.error_code)
        self.counts["ISR changes made" if code is ErrorCode.NONE else f"ISR changes refused: {code.name}"] += 1
        result = IsrResult(answer.leader_epoch, answer.partition_epoch, tuple(answer.isr))
        if self.rng.random() < self.loss or broker.life != life or (CONTROLLER, broker.id) in self.cut:
            return
        self.after(self.rng.choice((1, 5, 100)), broker, lambda: answered(result if code is ErrorCode.NONE else code))

    def load(self) -> None:
        for broker in self.brokers.values():
            if broker.alive and not broker.paused and broker.leadership is not None:
                broker.produce(f"v{next(self._values)}")
        for broker in self.brokers.values():
            if self.rng.random() < 0.1:
                broker.log.checkpointed = broker.log.high_watermark
            if self.rng.random() < 0.05:
                broker.log.synced = broker.log.end_offset
        self.after(self.rng.randint(1, 60), None, self.load)

    def run(self, faults_ms: int = 4_000, calm_ms: int = 3_000) -> None:
        self.after(1, None, self.load)
        self.after(self.rng.randint(50, 400), None, self.faults.next)
        while self.now < faults_ms and self.step():
            pass
        self.faults.heal()
        while self.now < faults_ms + calm_ms and self.step():
            pass
        self.check_calm()

    # what must hold

    def on_committed(self, leader: Broker, start: int, end: int) -> None:
        for offset in range(start, end):
            value = leader.log.records[offset][1]
            known = self.committed.setdefault(offset, value)
            assert self.unclean or known == value, f"offset {offset} held {known}, now {value} on broker {leader.id}"

    def on_acknowledged(self, offset: int, value: str) -> None:
        self.counts["acknowledged"] += 1
        assert self.unclean or self.committed.get(offset) == value, (
            f"{value} was acknowledged at {offset} but is not committed"
        )
        self.acknowledged[offset] = value

    def check_leader(self, leader: int) -> None:
        broker = self.brokers[leader]
        if (
            self.unclean or broker.has_lost
        ):  # a dead broker may be elected; it is not one that lives without its records
            return
        records = broker.log.records
        for offset, value in self.committed.items():
            assert offset < len(records) and records[offset][1] == value, (
                f"broker {leader} was elected without offset {offset}, which was committed as {value}"
            )

    def check(self) -> None:
        """The whole log is compared now and then, its end always."""
        if self.unclean:
            return
        partition = only_partition(self.image)
        end = len(self.committed)
        start = max(0, end - 5) if self.rng.random() < 0.98 else 0
        expected = [self.committed[offset] for offset in range(start, end)]
        for member in (*partition.isr, *partition.elr):
            broker = self.brokers[member]
            found = [value for _, value in broker.log.records[start:end]]
            assert found == expected or broker.has_lost, (
                f"broker {member} has {found} from {start} on, committed is {expected}; "
                f"but it is in the ISR {partition.isr} or eligible {partition.elr}"
            )

    def check_calm(self) -> None:
        partition = only_partition(self.image)
        if partition.leader < 0 and self.counts["disks replaced"]:
            # The last leader's disk is gone and the others stopped uncleanly: a person has to choose, and can.
            self.counts["left to a person"] += 1
            return self.check_somebody_has_everything()
        assert partition.leader >= 0, f"nobody leads in the end: {partition}"
        assert not partition.adding_replicas and not partition.removing_replicas, f"it still moves: {partition}"
        assert set(partition.isr) == set(partition.replicas), f"not in sync in the end: {partition}"
        leader = self.brokers[partition.leader].log
        for replica in partition.replicas:
            log = self.brokers[replica].log
            common = min(leader.high_watermark, log.end_offset)
            assert log.end_offset >= leader.high_watermark, f"broker {replica} is in the ISR and ends too early"
            assert log.records[:common] == leader.records[:common], f"broker {replica} differs"
        if self.unclean:
            return None
        assert len(self.acknowledged) <= leader.high_watermark
        for offset, value in self.acknowledged.items():
            assert leader.records[offset][1] == value, f"{value} at {offset} was acknowledged and is lost"
        return None

    def check_somebody_has_everything(self) -> None:
        logs = [[value for _, value in broker.log.records] for broker in self.brokers.values()]
        wanted = [self.acknowledged.get(offset) for offset in range(max(self.acknowledged, default=-1) + 1)]
        assert any(
            len(log) >= len(wanted) and all(want in (None, has) for want, has in zip(wanted, log, strict=False))
            for log in logs
        ), "acknowledged records are on no disk"
