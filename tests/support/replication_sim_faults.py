"""What happens to the nodes of the replication simulation.

Brokers are killed and keep what they wrote or lose what was not synced, come back, perhaps with an empty disk, stop
properly, hang while the controller gives them up and wake up in the belief that they still lead, are slow, are cut off
one way or both, alone and in sets, up to all of them at once. Disks are full for a while, or fail: then the broker
lives on without what is on them. The controller fails over. Partitions move from some brokers to others meanwhile.

`min.insync.replicas` of two promises that one replica may lose its disk. So records are lost only where the promise
holds: while another replica that has all that is committed is up, and nothing else fails until what was lost is
replicated again (`_may_fail`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from support.replication_clients import MAX_IN_FLIGHT
from support.replication_controller import CONTROLLER, SESSION_MS
from support.replication_log import TOPIC_NAME, ModelDisk
from support.replication_model import Broker

from controller.reassignments import alter_partition_reassignments
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.uuids import Uuid

if TYPE_CHECKING:
    from support.replication_sim import ReplicationSim


class ReplicationFaults:
    def __init__(self, sim: ReplicationSim) -> None:
        self.sim = sim
        self.rng = sim.rng
        self.is_over = False
        self._kinds = (
            self.crash,
            self.crash,
            self.lose_power,
            self.stop,
            self.pause,
            self.isolate,
            self.isolate,
            self.slow_down,
            self.fill_disk,
            self.fail_disk,
        )

    def next(self) -> None:
        if self.is_over:
            return
        sim, rng = self.sim, self.rng
        broker = sim.brokers[rng.choice(sim.broker_ids)]
        chance = rng.random()
        if not broker.alive:
            self.restart(broker)
        elif any(not disk.online for disk in broker.disks) and chance < 0.5 and self._may_fail(broker):
            rng.choice((self.stop, self.crash))(broker)
        elif chance < 0.14:
            self.reassign()
        elif chance < 0.22:
            sim.controller.fail_over()
        elif chance < 0.27:
            self.delete_records()
        elif self._may_fail():
            if chance < 0.4:
                self.storm()
            elif not broker.paused:
                rng.choice(self._kinds)(broker)
        sim.after(rng.randint(20, 360), None, self.next)

    def heal(self) -> None:
        sim = self.sim
        self.is_over = True
        sim.cut.clear()
        sim.loss = 0.0
        for broker in sim.brokers.values():
            broker.slow_ms = 0
            for disk in broker.disks:
                disk.is_full = False
            if broker.paused:
                broker.wake()
            if not broker.alive:
                self.restart(broker)
            elif any(not disk.online for disk in broker.disks):
                self._repair_disks(broker)

    def _repair_disks(self, broker: Broker) -> None:
        """It has to be started again for that, which is no clean stop: not while it may be needed."""
        if not broker.alive or all(disk.online for disk in broker.disks):
            return
        if self._may_fail(broker):
            broker.crash()
            self.restart(broker)
        else:
            self.sim.after(50, None, lambda: self._repair_disks(broker))

    # --- where the promise ends

    def on_registered(self, broker: Broker) -> None:
        """The controller knows of this process, and what it must not expect of it."""
        broker.behind |= broker.lost - broker.emptied
        broker.lost = set()
        broker.emptied = set()

    def _may_fail(self, broker: Broker | None = None) -> bool:
        """Whether the promise covers another failure (of `broker`): not while a disk of somebody (else) is lost whose
        records are not back."""
        others = [one for one in self.sim.brokers.values() if one is not broker]
        return self.sim.unclean or not any(one.lost or self._is_behind(one) for one in others)

    def _is_behind(self, broker: Broker) -> bool:
        """Came back from a loss of power, and is not in sync again."""
        sim = self.sim
        broker.behind = {
            index
            for index in broker.behind
            if broker.id in sim.partition(index).replicas and broker.id not in sim.partition(index).isr
        }
        return bool(broker.behind)

    def _may_lose(self, broker: Broker, indexes: Collection[int], *, up: bool = True) -> bool:
        """Whether somebody else has everything (and is `up`), and was promised to be needed by no more than one."""
        sim = self.sim
        return sim.unclean or all(
            min(sim.min_isr, self._target_size(index)) >= 2 and self._others_are_whole(broker, index, up)
            for index in indexes
        )

    def _target_size(self, index: int) -> int:
        """How many replicas there are when a reassignment is over."""
        partition = self.sim.partition(index)
        return len(set(partition.replicas) - set(partition.removing_replicas))

    def _others_are_whole(self, broker: Broker, index: int, up: bool) -> bool:
        partition = self.sim.partition(index)
        complete = [self.sim.brokers[b] for b in {*partition.isr, *partition.elr} - {broker.id}]
        if not up:
            return any(index not in one.lost for one in complete)
        return any(
            one.alive
            and not one.paused
            and not self.sim.is_cut_off(one)
            and index in one.replicas
            and all(disk.online and not disk.is_full for disk in one.disks)  # or its next stop is no clean one
            for one in complete
        )

    # --- crashes

    def crash(self, broker: Broker) -> None:
        """A killed process loses no record; but the controller cannot know that, and will count on others."""
        self._crash(broker, loses_unsynced=False)

    def _crash(self, broker: Broker, *, loses_unsynced: bool) -> None:
        sim = self.sim
        sim.counts["crashes"] += 1
        broker.crash(loses_unsynced=loses_unsynced)
        if self.rng.random() < 0.4:  # the address refuses connections, and somebody knocks
            sim.after(self.rng.randint(5, 60), sim.controller, lambda: sim.controller.on_probe(broker.id))
        if loses_unsynced or self.rng.random() < 0.4:  # whatever watches over it starts it again, perhaps unnoticed
            sim.after(self.rng.choice((1, 10, 80, 1_000)), None, lambda: self.restart(broker))

    def lose_power(self, broker: Broker) -> None:
        indexes = [index for disk in broker.disks for index in disk.logs]
        if not self._may_lose(broker, indexes):
            return self.crash(broker)
        self._crash(broker, loses_unsynced=True)
        self.sim.counts["losses of power"] += 1
        self.sim.counts["records lost on a disk"] += bool(broker.lost)
        return None

    def stop(self, broker: Broker) -> None:
        """As asked: it gives up leadership first, and stops when the controller agrees; or without that, in the end."""
        if broker.wants_stop:
            return
        self.sim.counts["proper stops"] += 1
        broker.wants_stop = True
        self.sim.after(1_000, broker, lambda: self.on_may_stop(broker))

    def on_may_stop(self, broker: Broker) -> None:
        broker.stop()
        if self.is_over:
            self.restart(broker)

    def restart(self, broker: Broker) -> None:
        """A disk that had failed may be back as it was, or not yet; any disk may be another one now."""
        if broker.alive:
            return
        for disk in broker.disks:
            was_offline = not disk.online
            disk.online = disk.online or self.is_over or self.rng.random() < 0.6
            if disk.online and not self.is_over and self.rng.random() < (0.3 if was_offline else 0.12):
                self._maybe_replace(broker, disk)
        if not any(disk.online for disk in broker.disks):
            broker.disks[0].online = True
        broker.start()

    def _maybe_replace(self, broker: Broker, disk: ModelDisk) -> None:
        """Even an empty disk counts: with one, the last stop was no clean one."""
        if not self._may_fail(broker) or not self._may_lose(broker, disk.logs, up=False):
            return
        if broker.lost - set(disk.logs):
            return
        self.sim.counts["disks replaced"] += 1
        broker.lost |= set(disk.logs)
        broker.emptied |= set(disk.logs)  # nobody takes it for one that has anything: others may crash meanwhile
        disk.logs.clear()
        disk.clean_epoch = None
        disk.id = Uuid(self.rng.randbytes(16))

    # --- disks

    def fill_disk(self, broker: Broker) -> None:
        disk = self.rng.choice(broker.disks)
        if disk.online and not disk.is_full:
            self.sim.counts["disks full"] += 1
            disk.is_full = True

            def free() -> None:
                disk.is_full = False

            self.sim.after(self.rng.choice((100, 500, 1_500)), None, free)

    def fail_disk(self, broker: Broker) -> None:
        """The broker lives on; what was in memory for that disk may be lost."""
        disk = self.rng.choice(broker.disks)
        if not all(one.online for one in broker.disks):
            return
        self.sim.counts["disks failed"] += 1
        loses = self.rng.random() < 0.5 and self._may_lose(broker, disk.logs)
        disk.online = False
        for log in disk.logs.values():
            if log.on_crash(self.rng, loses_unsynced=loses):
                self.sim.counts["records lost on a failed disk"] += 1
                broker.lost.add(log.index)
        broker.on_disk_failure(disk)

    # --- pauses and networks

    def pause(self, broker: Broker) -> None:
        sim = self.sim
        sim.counts["pauses"] += 1
        broker.paused = True
        life = broker.life

        def wake() -> None:
            if broker.life == life and broker.paused:
                broker.wake()

        sim.after(self.rng.choice((50, 300, SESSION_MS * 2)), None, wake)

    def slow_down(self, broker: Broker) -> None:
        self.sim.counts["slow"] += 1
        broker.slow_ms = self.rng.choice((20, 100, 350))

        def end() -> None:
            broker.slow_ms = 0

        self.sim.after(self.rng.choice((200, 1_000)), None, end)

    def isolate(self, *brokers: Broker) -> None:
        """From all others: both ways, or one way; and from the controller, or not."""
        sim = self.sim
        inside = {broker.id for broker in brokers}
        outside = {*sim.broker_ids, CONTROLLER} - inside
        sends = {(a, b) for a in inside for b in outside}
        hears = {(b, a) for a, b in sends}
        name, links = self.rng.choice(
            (("both ways", sends | hears), ("sends nothing", sends), ("hears nothing", hears))
        )
        sim.counts[f"isolations: {name}"] += 1
        if self.rng.random() < 0.4:
            links = {link for link in links if CONTROLLER not in link}
        sim.cut |= links

        def end() -> None:
            sim.cut -= links

        sim.after(self.rng.choice((100, 500, 1_500)), None, end)

    # --- many at once

    def storm(self) -> None:
        """Some of the brokers, up to all of them, at one moment; or killed and started over and over."""
        sim, rng = self.sim, self.rng
        up = [broker for broker in sim.brokers.values() if broker.alive and not broker.paused]
        if len(up) < 2:
            return
        chosen = rng.sample(up, rng.randint(2, len(up)))
        kind = rng.choice(("crash", "pause", "isolate", "restart"))
        sim.counts[f"storms: {kind}"] += 1
        sim.counts["all at once"] += len(chosen) == len(sim.brokers)
        if kind == "isolate":
            self.isolate(*chosen)
            return
        for broker in chosen:
            if kind == "crash":
                self.crash(broker)
            elif kind == "pause":
                self.pause(broker)
            else:
                self._restart_again(broker, rng.randint(1, 3))

    def _restart_again(self, broker: Broker, times: int) -> None:
        if broker.alive and not self.is_over:
            self.crash(broker)
        if times:

            def start() -> None:
                self.restart(broker)
                self.sim.after(self.rng.randint(1, 150), None, lambda: self._restart_again(broker, times - 1))

            self.sim.after(self.rng.randint(1, 60), None, start)

    # --- operations

    def reassign(self) -> None:
        """To other brokers, to fewer, back again, or called off."""
        sim, rng = self.sim, self.rng
        index = rng.randrange(len(sim.histories))
        wanted = rng.sample(sim.broker_ids, rng.choice((1, 2, 3, 3)))
        if len(wanted) == 1 and sim.brokers[wanted[0]].lost:
            return  # who wants a partition on a single replica cannot want that one
        replicas = None if rng.random() < 0.2 else wanted
        part = ReassignablePartition(partition_index=index, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=TOPIC_NAME, partitions=[part])])
        sim.counts["reassignments"] += 1
        sim.controller.decide(lambda image: alter_partition_reassignments(image, request, config=sim.config))

    def delete_records(self) -> None:
        """From the beginning, as DeleteRecords and retention do; what is younger than the batches in flight stays."""
        sim = self.sim
        history = self.rng.choice(sim.histories)
        replica = sim.brokers[history.image.leader].replicas.get(history.index) if history.image.leader >= 0 else None
        if replica is not None and replica.partition.leader == replica.broker.id:
            sim.counts["records deleted"] += 1
            replica.log.advance_log_start(replica.log.high_watermark - 2 * MAX_IN_FLIGHT)
