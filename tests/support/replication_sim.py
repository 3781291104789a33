"""Brokers that replicate one partition, simulated from a seed: the product's leader, follower and controller cores.

Logs are lists, the network is a heap of deliveries, time is a number. Messages between brokers may be lost or late; the
metadata reaches every broker in order, but each in its own time. Brokers crash and keep what they wrote, or come back
with an empty disk while another has everything, hang while the controller gives them up, and wake up in the belief that
they still lead.

Checked after every event: an offset that any leader ever called committed holds one value for ever; a leader elected by
the controller has every committed record; every member of the controller's ISR has every acknowledged record.
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
from support.replication_model import LAG_MAX_MS, Broker, ModelLog

from broker.replication.leader import IsrChange, IsrResult
from controller.alter_partition import alter_partition
from controller.brokers import Registration, fence_broker, register_broker, unfenced
from controller.delta import apply_records
from controller.image import Endpoint
from controller.replica_directories import assign_replicas_to_directories
from protocol.errors import ApiError, ErrorCode
from protocol.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, DirectoryData
from protocol.messages.assign_replicas_to_dirs import PartitionData as DirectoryPartition
from protocol.messages.assign_replicas_to_dirs import TopicData as DirectoryTopic
from protocol.metadata.config_record import ConfigRecord
from protocol.uuids import Uuid

SESSION_MS = 600
BROKERS = (1, 2, 3)


class ReplicationSim:
    def __init__(self, seed: int, directory: Path) -> None:
        self.rng = Random(seed)
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
        replicas = self.rng.sample(BROKERS, len(BROKERS))
        self.image = with_partition(cluster(*(broker_record(b) for b in BROKERS)), *replicas)
        self.image, _ = apply_records(self.image, records, offset=1_000, epoch=1)  # broker epochs are offsets
        self.brokers = {broker_id: Broker(self, broker_id) for broker_id in BROKERS}
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
            self.after(self.rng.choice((1, 3, 10, 60, 200)), broker, lambda b=broker, i=image: b.on_image(i))

    def to_controller(
        self, broker: Broker, change: IsrChange, answered: Callable[[IsrResult | ErrorCode], None]
    ) -> None:
        if self.rng.random() < self.loss or (broker.id, 0) in self.cut:
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
        if self.rng.random() < self.loss or broker.life != life:
            return
        self.after(self.rng.choice((1, 5, 100)), broker, lambda: answered(result if code is ErrorCode.NONE else code))

    def fence(self, broker: Broker) -> None:
        registered = self.image.brokers[broker.id]
        if not registered.fenced and registered.epoch == broker.epoch:
            self.counts["fenced"] += 1
            self.change(fence_broker(self.image, self.config, broker.id))

    def unfence(self, broker: Broker) -> None:
        self.change(unfenced(self.image, self.config, broker.id))

    # faults

    def crash(self, broker: Broker) -> None:
        self.counts["crashes"] += 1
        broker.crash()
        epoch = broker.epoch
        self.after(SESSION_MS, None, lambda: broker.epoch == epoch and not broker.alive and self.fence(broker))

    def restart(self, broker: Broker, *, empty: bool = False) -> None:
        """A new incarnation: without word of a clean stop, so the controller counts its log as possibly cut."""
        directories = list(self.image.brokers[broker.id].directories)
        if empty:
            self.counts["disks replaced"] += 1
            broker.log = ModelLog()
            directories = [Uuid(self.rng.randbytes(16))]
            self.after(self.rng.randint(5, 300), broker, lambda: self.assign(broker, directories[0]))
        registration = Registration(
            broker_id=broker.id,
            incarnation_id=Uuid(self.rng.randbytes(16)),
            endpoints=[Endpoint("PLAINTEXT", f"b{broker.id}", 9092, 0)],
            directories=directories,
            rack=None,
            features={},
            previous_epoch=-1,
        )
        self.change(register_broker(self.image, self.config, registration, self.image.offset + 1))
        broker.epoch = self.image.brokers[broker.id].epoch
        broker.alive = True
        broker.on_image(self.image)
        self.after(LAG_MAX_MS, broker, broker.check_lag)
        self.after(self.rng.randint(5, 100), broker, lambda: self.unfence(broker))

    def assign(self, broker: Broker, directory: Uuid) -> None:
        """The broker tells where its replica is now."""
        topic = self.image.topics_by_name["t"].topic_id
        replicas = [DirectoryTopic(topic_id=topic, partitions=[DirectoryPartition(partition_index=0)])]
        request = AssignReplicasToDirsRequest(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            directories=[DirectoryData(id=directory, topics=replicas)],
        )
        self.change(list(assign_replicas_to_directories(self.image, request, config=self.config).records))

    def may_lose_disk(self, broker: Broker) -> bool:
        """Somebody else is known to have everything: no promise survives the loss of all copies."""
        partition = only_partition(self.image)
        return bool({*partition.isr, *partition.elr} - {broker.id})

    def pause(self, broker: Broker) -> None:
        self.counts["pauses"] += 1
        broker.paused = True
        length = self.rng.choice((50, 300, SESSION_MS * 2))
        life = broker.life

        def wake() -> None:
            if broker.life == life:
                broker.paused = False
                if length > SESSION_MS:
                    self.after(self.rng.randint(10, 80), broker, lambda: self.unfence(broker))

        if length > SESSION_MS:
            self.after(SESSION_MS, None, lambda: broker.life == life and broker.paused and self.fence(broker))
        self.after(length, None, wake)

    def isolate(self, broker: Broker) -> None:
        """From the other brokers, both ways or one way, while the controller may still hear of it."""
        self.counts["isolations"] += 1
        others = [b for b in (*BROKERS, 0) if b != broker.id]
        links = {(broker.id, b) for b in others}
        if self.rng.random() < 0.6:
            links |= {(b, broker.id) for b in others}
        if self.rng.random() < 0.5:
            links.discard((broker.id, 0))
        self.cut |= links
        self.after(self.rng.choice((100, 500, 1500)), None, lambda: self.cut.difference_update(links))

    def fault(self) -> None:
        broker = self.brokers[self.rng.choice(BROKERS)]
        if not broker.alive:
            self.restart(broker, empty=self.rng.random() < 0.2 and self.may_lose_disk(broker))
        elif not broker.paused:
            self.rng.choice((self.crash, self.pause, self.isolate))(broker)
        self.after(self.rng.randint(20, 900), None, self.fault)

    def heal(self) -> None:
        self.cut.clear()
        self.loss = 0.0
        for broker in self.brokers.values():
            broker.paused = False
            if not broker.alive:
                self.restart(broker)
            elif self.image.brokers[broker.id].fenced:
                self.unfence(broker)

    def load(self) -> None:
        for broker in self.brokers.values():
            if broker.alive and not broker.paused and broker.leadership is not None:
                broker.produce(f"v{next(self._values)}")
        for broker in self.brokers.values():
            if self.rng.random() < 0.1:
                broker.log.checkpointed = broker.log.high_watermark
        self.after(self.rng.randint(1, 60), None, self.load)

    def run(self, faults_ms: int = 4_000, calm_ms: int = 4_000) -> None:
        self.after(1, None, self.load)
        self.after(self.rng.randint(50, 400), None, self.fault)
        while self.now < faults_ms and self.step():
            pass
        self._heap = [e for e in self._heap if e[4].__name__ not in ("fault",)]
        heapq.heapify(self._heap)
        self.heal()
        while self.now < faults_ms + calm_ms and self.step():
            pass
        self.check_calm()

    # what must hold

    def on_committed(self, leader: Broker, start: int, end: int) -> None:
        for offset in range(start, end):
            value = leader.log.records[offset][1]
            known = self.committed.setdefault(offset, value)
            assert known == value, f"offset {offset} held {known}, and now {value} on broker {leader.id}"

    def on_acknowledged(self, offset: int, value: str) -> None:
        self.counts["acknowledged"] += 1
        assert self.committed.get(offset) == value, f"{value} was acknowledged at {offset} but is not committed"
        self.acknowledged[offset] = value

    def check_leader(self, leader: int) -> None:
        records = self.brokers[leader].log.records
        for offset, value in self.committed.items():
            assert offset < len(records) and records[offset][1] == value, (
                f"broker {leader} was elected without offset {offset}, which was committed as {value}"
            )

    def check(self) -> None:
        """The whole log is compared now and then, its end always."""
        partition = only_partition(self.image)
        tail = max(0, len(self.committed) - 5)
        offsets = range(tail, len(self.committed)) if self.rng.random() < 0.95 else range(len(self.committed))
        for member in partition.isr:
            records = self.brokers[member].log.records
            for offset in offsets:
                assert offset < len(records) and records[offset][1] == self.committed[offset], (
                    f"broker {member} is in the ISR {partition.isr} without the committed offset {offset}"
                )
        for broker in self.brokers.values():
            assert broker.log.high_watermark <= broker.log.end_offset

    def check_calm(self) -> None:
        partition = only_partition(self.image)
        if partition.leader < 0 and self.counts["disks replaced"]:
            # The last leader's disk is gone and the others stopped uncleanly: a person has to choose, and can.
            self.counts["left to a person"] += 1
            return self.check_somebody_has_everything()
        assert partition.leader >= 0, f"nobody leads in the end: {partition}"
        assert set(partition.isr) == set(BROKERS), f"not in sync in the end: {partition}"
        leader = self.brokers[partition.leader].log
        for broker in self.brokers.values():
            common = min(leader.high_watermark, broker.log.end_offset)
            assert broker.log.records[:common] == leader.records[:common], f"broker {broker.id} differs"
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
