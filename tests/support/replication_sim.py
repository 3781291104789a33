"""Brokers that replicate partitions, simulated from a seed: the product's partitions, followers and controller.

Logs are lists, the network is a heap of deliveries, time is a number. Messages between nodes may be lost or late; the
metadata reaches every broker in order, but each in its own time. What is done to the nodes is in
`replication_sim_faults`, what has to hold in `replication_history`.

In the end all faults are healed, and then it has to go on: within a bounded time every partition has a leader and all
its replicas in sync, what producers send is acknowledged, even if one broker dies then, and when they have stopped,
everything is committed and every replica and every reader knows. Partitions that the rules leave to a person are
exempt, and counted.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from support.metadata import broker_record, cluster, image_of, node_config
from support.partitions import TOPIC, partition_record
from support.replication_clients import Producer, Reader
from support.replication_controller import CONTROLLER, Controller, Decide
from support.replication_history import History
from support.replication_log import TOPIC_NAME, LogSettings, ModelDisk, ModelLog
from support.replication_model import Broker
from support.replication_sim_faults import ReplicationFaults

from controller.delta import apply_records
from controller.image import MetadataImage, PartitionImage
from protocol.metadata.config_record import ConfigRecord
from protocol.metadata.topic_record import TopicRecord
from protocol.uuids import Uuid

BROKERS = (1, 2, 3, 4)
DISKS = 2
REPLICAS = 3
DELAYS_MS = (1, 1, 2, 5, 40)

PUBLICATION_MS = (1, 3, 10, 60, 200)

FAULTS_MS = 2_200
SETTLE_MS = 6_000
"""Bounds of the end, in simulated time: until everybody is in sync again,"""
PROGRESS_MS = 4_000
"""until so many more records are acknowledged in every partition,"""
PROGRESS_RECORDS = 4
LEVEL_MS = 4_000
"""and until everything is committed everywhere once nobody produces any more."""
LOOK_MS = 25


class ReplicationSim:
    def __init__(self, seed: int, directory: Path, *, unclean: bool = False) -> None:
        self.rng = Random(seed)
        self.unclean = unclean
        self.now = 0
        self.counts: Counter[str] = Counter()
        self.min_isr = self.rng.choice((1, 2, 2))
        self.loss = self.rng.choice((0.0, 0.02, 0.1))
        self.cut: set[tuple[int, int]] = set()
        self.order = count()
        self.config = node_config(directory)
        self._heap: list[tuple[int, int, Any, int, Callable[[], None]]] = []
        self._directory = str(directory)
        self._settings = LogSettings(self.min_isr)
        self.broker_ids = list(BROKERS)
        disks = {b: [ModelDisk(Uuid(bytes([200 + at, b]) * 8)) for at in range(DISKS)] for b in BROKERS}
        image = self._first_image(disks)
        partitions = image.topics_by_id[TOPIC].partitions
        for index, partition in partitions.items():
            for replica, directory_id in zip(partition.replicas, partition.directories, strict=True):
                self.new_log(index, next(disk for disk in disks[replica] if disk.id == directory_id))
        self.controller = Controller(self, image)
        self.histories = [History(self, index) for index in partitions]
        self.brokers = {b: Broker(self, b, disks[b], image.brokers[b].epoch) for b in BROKERS}
        self.faults = ReplicationFaults(self)
        for broker in self.brokers.values():
            broker.on_image(image)
            broker.run()
        self.producers = [Producer(self, index, 100 + index) for index in partitions]
        self.readers = [Reader(self, index) for index in partitions]

    def _first_image(self, disks: dict[int, list[ModelDisk]]) -> MetadataImage:
        """A topic with some partitions, each on some of the brokers, on one disk or another."""
        rng = self.rng
        records: list[Any] = [TopicRecord(name=TOPIC_NAME, topic_id=TOPIC)]
        for index in range(rng.choice((1, 1, 2, 3))):
            replicas = rng.sample(BROKERS, REPLICAS)
            directories = [rng.choice(disks[replica]).id for replica in replicas]
            records.append(partition_record(index, *replicas, directories=directories))
        settings = {"min.insync.replicas": str(self.min_isr)}
        if self.unclean:
            settings["unclean.leader.election.enable"] = "true"
        for name, value in settings.items():
            records.append(ConfigRecord(resource_type=2, resource_name=TOPIC_NAME, name=name, value=value))
        brokers = cluster(*(broker_record(b, log_dirs=[disk.id for disk in disks[b]]) for b in BROKERS))
        image = image_of(records, brokers)
        return apply_records(image, [], offset=1_000, epoch=1)[0]  # broker epochs are offsets

    def new_log(self, index: int, disk: ModelDisk) -> ModelLog:
        return ModelLog(index, disk, self._directory, self._settings)

    def partition(self, index: int) -> PartitionImage:
        """As the controller's committed metadata have it."""
        return self.controller.committed.topics_by_id[TOPIC].partitions[index]

    # --- time and messages

    def after(self, delay_ms: int, owner: Any, what: Callable[[], None]) -> None:
        """`owner`: the broker or controller whose process does it, if that still lives then."""
        life = -1 if owner is None else owner.life
        heapq.heappush(self._heap, (self.now + delay_ms, next(self.order), owner, life, what))

    def delay_ms(self) -> int:
        return DELAYS_MS[int(self.rng.random() * len(DELAYS_MS))]

    def message(self, source: Any, target: Any, deliver: Callable[[], None]) -> None:
        if (source.id, target.id) in self.cut or (self.loss and self.rng.random() < self.loss):
            return
        delay_ms = DELAYS_MS[int(self.rng.random() * len(DELAYS_MS))] + source.slow_ms + target.slow_ms
        heapq.heappush(self._heap, (self.now + delay_ms, next(self.order), target, target.life, deliver))

    def ask(self, broker: Broker, decide: Decide, answered: Callable[[Any], None]) -> None:
        """A request to the active controller. Nobody may answer; who asks has to see to that."""
        life, controller = broker.life, self.controller

        def reply(response: Any) -> None:
            if broker.life == life:
                self.message(controller, broker, lambda: answered(response))

        self.message(broker, controller, lambda: controller.decide(decide, reply))

    def step(self) -> bool:
        """One event; False when nothing is left."""
        heap = self._heap
        while heap:
            due, _, owner, life, what = heapq.heappop(heap)
            self.now = due
            if owner is not None:
                if not owner.alive or owner.life != life:
                    continue
                if owner.paused:
                    owner.held.append(what)
                    continue
            what()
            return True
        return False

    # --- metadata

    def on_metadata(self, before: MetadataImage, image: MetadataImage) -> None:
        """The controller's log has this committed from now on; every broker reads it in its own time."""
        restarted = set()
        for broker_id, registered in image.brokers.items():
            if registered.epoch != before.brokers[broker_id].epoch:
                restarted.add(broker_id)
                self.faults.on_registered(self.brokers[broker_id])
            elif registered.fenced and not before.brokers[broker_id].fenced:
                self.counts["fenced"] += 1
        old = before.topics_by_id[TOPIC].partitions
        for index, partition in image.topics_by_id[TOPIC].partitions.items():
            if partition is not old[index] or restarted:
                if partition.leader_epoch != old[index].leader_epoch:
                    self.counts["elections"] += 1
                self.histories[index].on_metadata(old[index], partition, restarted)
        for broker in self.brokers.values():
            if broker.alive:
                self.after(self.rng.choice(PUBLICATION_MS), broker, lambda b=broker: self._publish(b, image))

    def _publish(self, broker: Broker, image: MetadataImage) -> None:
        """A broker fetches the metadata: both directions have to work. It registers before it reads any."""
        if self.is_cut_off(broker):
            self.after(50, broker, lambda: self._publish(broker, image))
        elif broker.image is not None:
            broker.on_image(image)

    def is_cut_off(self, broker: Broker) -> bool:
        return (broker.id, CONTROLLER) in self.cut or (CONTROLLER, broker.id) in self.cut

    def _sync(self) -> None:
        """Now and then a disk is synced, and a high watermark written down."""
        for broker in self.brokers.values():
            for replica in broker.replicas.values():
                chance = self.rng.random()
                if chance < 0.2:
                    replica.log.checkpointed = replica.log.high_watermark
                elif chance < 0.3:
                    replica.log.synced = replica.log.log_end_offset
        self.after(80, None, self._sync)

    # --- the run

    def run(self) -> None:
        self.after(1, None, self._sync)
        self.after(self.rng.randint(50, 300), None, self.faults.next)
        while self.now < FAULTS_MS and self.step():
            pass
        self.faults.heal()
        self._until(self._why_not_settled, SETTLE_MS)
        dead = self._maybe_lose_one()
        wanted = [producer.acknowledged + PROGRESS_RECORDS for producer in self.producers]
        self._until(lambda: self._why_no_progress(wanted, dead), PROGRESS_MS)
        if dead is not None:
            self.faults.restart(self.brokers[dead])
            self._until(self._why_not_settled, SETTLE_MS)
        for producer in self.producers:
            producer.is_stopped = True
        self._until(self._why_not_level, LEVEL_MS)
        for history in self.histories:
            if history.is_left_to_a_person():
                self.counts["left to a person"] += 1
                history.check_somebody_has_everything()
            else:
                history.check_end()

    def _maybe_lose_one(self) -> int | None:
        """A broker that stays dead for a while, perhaps not even the controller notices at once: it has to go on."""
        if self.rng.random() < 0.7:
            return None
        dead = self.rng.choice(self.broker_ids)
        self.brokers[dead].crash()
        if self.rng.random() < 0.5:
            self.controller.fail_over()
        return dead

    def _until(self, why_not: Callable[[], str | None], bound_ms: int) -> None:
        """Liveness: what is to come about comes about in time."""
        end = self.now + bound_ms
        look = self.now
        while (reason := why_not()) is not None:
            assert self.now < end, f"after {bound_ms} ms without faults: {reason}"
            look += LOOK_MS
            while self.now < look and self.step():
                pass

    def _going(self) -> list[History]:
        return [history for history in self.histories if not history.is_left_to_a_person()]

    def _why_not_settled(self) -> str | None:
        for broker in self.brokers.values():
            registered = self.controller.committed.brokers[broker.id]
            if not all(disk.online for disk in broker.disks):
                return f"broker {broker.id} waits for its disks"
            if not broker.alive or broker.image is None or registered.fenced or registered.epoch != broker.epoch:
                return f"broker {broker.id} is not back"
        return next((why for history in self._going() if (why := history.why_not_settled()) is not None), None)

    def _why_no_progress(self, wanted: list[int], dead: int | None) -> str | None:
        """Where enough replicas are left."""
        for history in self._going():
            producer = self.producers[history.index]
            replicas = history.image.replicas
            left = len(set(replicas) - {dead})
            if left < max(1, min(self.min_isr, len(replicas))):
                continue
            if producer.acknowledged < wanted[history.index]:
                return f"producer {producer.producer_id} has {producer.acknowledged} records acknowledged"
        return None

    def _why_not_level(self) -> str | None:
        for history in self._going():
            producer, reader = self.producers[history.index], self.readers[history.index]
            if producer.undecided:
                return f"{len(producer.undecided)} batches of producer {producer.producer_id} are undecided"
            why = history.why_not_level()
            if why is not None:
                return why
            end = len(history.committed)
            if not self.unclean and (reader.position < end or reader.latest < end):
                return f"a reader of partition {history.index} knows {reader.position} and {reader.latest} of {end}"
        return None
