"""What happens to the brokers of the replication simulation: they crash and keep what they wrote or lose what was not
synced, come back with an empty disk, stop properly, hang while the controller gives them up and wake up in the belief
that they still lead, are cut off one way or both, and the partition moves from some to others meanwhile.

`min.insync.replicas` of n promises that n - 1 replicas may lose their disks. So power fails only where the promise
holds: while another replica that has all that is committed lives on (`_others_are_whole`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.partitions import only_partition
from support.replication_model import LAG_MAX_MS, Broker, ModelLog

from controller.brokers import Registration, begin_controlled_shutdown, fence_broker, register_broker, unfenced
from controller.image import Endpoint
from controller.reassignments import alter_partition_reassignments
from controller.replica_directories import assign_replicas_to_directories
from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, DirectoryData
from protocol.messages.assign_replicas_to_dirs import PartitionData as DirectoryPartition
from protocol.messages.assign_replicas_to_dirs import TopicData as DirectoryTopic
from protocol.uuids import Uuid

if TYPE_CHECKING:
    from support.replication_sim import ReplicationSim

SESSION_MS = 600
CONTROLLER = 0
"""Its place among the ends of a link."""


class ReplicationFaults:
    def __init__(self, sim: ReplicationSim) -> None:
        self.sim = sim
        self.rng = sim.rng
        self.is_over = False

    def next(self) -> None:
        if self.is_over:
            return
        sim = self.sim
        broker = sim.brokers[self.rng.choice(list(sim.brokers))]
        if not broker.alive:
            self.restart(broker, empty=self.rng.random() < 0.3 and self._may_replace_disk(broker))
        elif not broker.paused:
            kinds: tuple[Any, ...] = (self.crash, self.lose_power, self.stop, self.pause, self.isolate, self.reassign)
            self.rng.choice(kinds)(broker)
        sim.after(self.rng.randint(20, 900), None, self.next)

    def heal(self) -> None:
        sim = self.sim
        self.is_over = True
        sim.cut.clear()
        sim.loss = 0.0
        for broker in sim.brokers.values():
            broker.paused = False
            if not broker.alive:
                self.restart(broker)
            else:
                self.unfence(broker)

    # --- the controller's view of a broker's life

    def fence(self, broker: Broker, epoch: int) -> None:
        """Its session is over; a later incarnation has a session of its own."""
        sim = self.sim
        registered = sim.image.brokers[broker.id]
        if not registered.fenced and registered.epoch == epoch:
            sim.counts["fenced"] += 1
            sim.change(fence_broker(sim.image, sim.config, broker.id))

    def unfence(self, broker: Broker) -> None:
        """It beats again, and has read all metadata: otherwise it would not be let in."""
        sim = self.sim
        if not broker.alive or broker.paused or not sim.image.brokers[broker.id].fenced:
            return
        if sim.is_cut_off(broker):
            sim.after(50, broker, lambda: self.unfence(broker))
            return
        broker.on_image(sim.image)
        sim.change(unfenced(sim.image, sim.config, broker.id))

    # --- crashes

    def crash(self, broker: Broker, *, loses_unsynced: bool = False) -> None:
        """A killed process loses no record; but the controller cannot know that, and will count on others."""
        sim = self.sim
        if any(b.has_lost or self._is_behind(b) for b in sim.brokers.values()) and not self._others_are_whole(broker):
            return self.pause(broker)
        sim.counts["crashes"] += 1
        broker.crash(loses_unsynced=loses_unsynced)
        epoch = broker.epoch
        sim.after(SESSION_MS, None, lambda: None if broker.alive else self.fence(broker, epoch))
        if self.rng.random() < 0.4:  # whatever watches over it starts it again before anyone has noticed
            sim.after(self.rng.choice((1, 10, 80)), None, lambda: None if broker.alive else self.restart(broker))
        return None

    def lose_power(self, broker: Broker) -> None:
        sim = self.sim
        if not self._may_lose_disk(broker):
            return self.crash(broker)
        self.crash(broker, loses_unsynced=True)
        sim.counts["losses of power"] += not broker.alive
        sim.counts["records lost on a disk"] += broker.has_lost
        return None

    def _others_are_whole(self, broker: Broker) -> bool:
        partition = only_partition(self.sim.image)
        complete = [self.sim.brokers[b] for b in {*partition.isr, *partition.elr} - {broker.id}]
        return any(one.alive and not one.has_lost for one in complete)

    def _may_lose_disk(self, broker: Broker) -> bool:
        return self.sim.unclean or (self.sim.min_isr >= 2 and self._others_are_whole(broker))

    def _may_replace_disk(self, broker: Broker) -> bool:
        """Somebody else has everything, and the controller knows it; whether that one runs just now or not."""
        partition = only_partition(self.sim.image)
        others = [self.sim.brokers[b] for b in {*partition.isr, *partition.elr} - {broker.id}]
        return self.sim.unclean or any(not one.has_lost for one in others)

    def _is_behind(self, broker: Broker) -> bool:
        """Came back from a loss of power, and is not in sync again."""
        broker.is_behind = broker.is_behind and broker.id not in only_partition(self.sim.image).isr
        return broker.is_behind

    def stop(self, broker: Broker) -> None:
        """As asked: it gives up leadership first, and stops when the controller agrees; then all is synced."""
        sim = self.sim
        if sim.is_cut_off(broker) or sim.image.brokers[broker.id].fenced:
            return
        sim.counts["proper stops"] += 1
        sim.change(begin_controlled_shutdown(sim.image, sim.config, broker.id))
        life = broker.life

        def end() -> None:
            if broker.life == life and broker.alive:
                broker.stop()
                self.fence(broker, broker.epoch)
                if self.is_over:
                    self.restart(broker)

        sim.after(self.rng.choice((5, 50, 250)), None, end)

    def restart(self, broker: Broker, *, empty: bool = False) -> None:
        """A new incarnation; without word of a proper stop the controller takes its log to be cut. With another disk
        nothing is known of a proper stop, and the broker tells where its replica is now."""
        sim = self.sim
        directories = list(sim.image.brokers[broker.id].directories)
        if empty:
            sim.counts["disks replaced"] += 1
            broker.log = ModelLog()
            # Nobody takes it for one that has anything: others may crash meanwhile.
            broker.has_lost = broker.is_behind = broker.stopped_cleanly = False
            directories = [Uuid(self.rng.randbytes(16))]
            sim.after(self.rng.randint(5, 300), broker, lambda: self.assign(broker, directories[0]))
        registration = Registration(
            broker_id=broker.id,
            incarnation_id=Uuid(self.rng.randbytes(16)),
            endpoints=[Endpoint("PLAINTEXT", f"b{broker.id}", 9092, 0)],
            directories=directories,
            rack=None,
            features={},
            previous_epoch=broker.epoch if broker.stopped_cleanly else -1,
        )
        broker.is_behind = broker.is_behind or broker.has_lost
        broker.has_lost = broker.stopped_cleanly = False
        sim.change(register_broker(sim.image, sim.config, registration, sim.image.offset + 1))
        broker.epoch = sim.image.brokers[broker.id].epoch
        broker.alive = True
        broker.on_image(sim.image)
        sim.after(LAG_MAX_MS, broker, broker.check_lag)
        sim.after(self.rng.randint(5, 100), broker, lambda: self.unfence(broker))

    def assign(self, broker: Broker, directory: Uuid) -> None:
        """The broker tells where its replica is now."""
        sim = self.sim
        topic = sim.image.topics_by_name["t"].topic_id
        replicas = [DirectoryTopic(topic_id=topic, partitions=[DirectoryPartition(partition_index=0)])]
        request = AssignReplicasToDirsRequest(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            directories=[DirectoryData(id=directory, topics=replicas)],
        )
        sim.change(list(assign_replicas_to_directories(sim.image, request, config=sim.config).records))

    # --- pauses and networks

    def pause(self, broker: Broker) -> None:
        sim = self.sim
        sim.counts["pauses"] += 1
        broker.paused = True
        length = self.rng.choice((50, 300, SESSION_MS * 2))
        life, epoch = broker.life, broker.epoch

        def wake() -> None:
            if broker.life == life:
                broker.paused = False
                sim.after(self.rng.randint(10, 80), broker, lambda: self.unfence(broker))

        if length > SESSION_MS:
            sim.after(SESSION_MS, None, lambda: self.fence(broker, epoch) if broker.paused else None)
        sim.after(length, None, wake)

    def isolate(self, broker: Broker) -> None:
        """From the other brokers: both ways, or one way; and from the controller, or not."""
        sim = self.sim
        others = [b for b in (*sim.brokers, CONTROLLER) if b != broker.id]
        sends, hears = {(broker.id, b) for b in others}, {(b, broker.id) for b in others}
        name, links = self.rng.choice(
            (("both ways", sends | hears), ("sends nothing", sends), ("hears nothing", hears))
        )
        sim.counts[f"isolations: {name}"] += 1
        if self.rng.random() < 0.4:
            links -= {(broker.id, CONTROLLER), (CONTROLLER, broker.id)}
        sim.cut |= links
        length, epoch = self.rng.choice((100, 500, 1500)), broker.epoch
        if length > SESSION_MS:
            sim.after(SESSION_MS, None, lambda: self.fence(broker, epoch) if sim.is_cut_off(broker) else None)

        def end() -> None:
            sim.cut -= links
            sim.after(self.rng.randint(10, 80), broker, lambda: self.unfence(broker))

        sim.after(length, None, end)

    # --- operations

    def reassign(self, broker: Broker) -> None:
        """To other brokers, to fewer, back again, or called off."""
        sim = self.sim
        wanted = self.rng.sample(list(sim.brokers), self.rng.choice((2, 3, 3)))
        replicas = None if self.rng.random() < 0.2 else wanted
        topic = ReassignableTopic(name="t", partitions=[ReassignablePartition(partition_index=0, replicas=replicas)])
        outcome = alter_partition_reassignments(
            sim.image, AlterPartitionReassignmentsRequest(topics=[topic]), config=sim.config
        )
        if outcome.response.responses[0].partitions[0].error_code == ErrorCode.NONE:
            sim.counts["reassignments"] += 1
        sim.change(list(outcome.records))
