"""A broker of the replication simulation: one process after another under one id, on the same disks.

What the process knows is made anew at every start: its partitions, from what it finds on the disks and in the metadata,
as `broker.replicas` does it; its requests to the controller, as `broker.lifecycle`, `broker.directory_assignment` and
`broker.replication.isr_updates` do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.partitions import TOPIC
from support.replication_log import ModelDisk, ModelLog
from support.replication_replica import Replica

from broker.partition import Partition
from broker.replication.cluster import ClusterView
from broker.replication.isr_updates import _NOT_ATTEMPTED, _WAIT_FOR_METADATA
from broker.replication.leader import IsrChange, IsrResult
from controller.alter_partition import alter_partition
from controller.brokers import Registration, register_broker
from controller.heartbeats import broker_heartbeat
from controller.image import Endpoint, MetadataImage, PartitionImage, TopicImage
from controller.outcome import Outcome
from controller.replica_directories import assign_replicas_to_directories
from protocol.errors import ApiError, ErrorCode
from protocol.messages.alter_partition import AlterPartitionRequest, BrokerState, PartitionData, TopicData
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, DirectoryData
from protocol.messages.assign_replicas_to_dirs import PartitionData as DirectoryPartition
from protocol.messages.assign_replicas_to_dirs import TopicData as DirectoryTopic
from protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.uuids import DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Uuid
from storage.log_directory import epoch_of_clean_stop

if TYPE_CHECKING:
    from support.replication_sim import ReplicationSim

LAG_MAX_MS = 400
HEARTBEAT_MS = 200
RETRY_MS = 200
_NOWHERE_YET = (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING)


class Broker:
    def __init__(self, sim: ReplicationSim, broker_id: int, disks: list[ModelDisk], epoch: int) -> None:
        self.sim = sim
        self.id = broker_id
        self.disks = disks
        self.epoch = epoch
        self.alive = True
        self.paused = False
        self.held: list[Any] = []
        """Events that wait for the end of a pause."""
        self.slow_ms = 0
        self.life = 0
        """Deliveries to an earlier process go nowhere."""
        self.lost: set[int] = set()
        """Partitions of which records are gone with a disk or the power, while the controller does not know."""
        self.behind: set[int] = set()
        """... it does know, but the records are not back yet."""
        self.emptied: set[int] = set()
        """Of those lost: nothing is there at all, on a new disk."""
        self._begin()

    def _begin(self) -> None:
        self.image: MetadataImage | None = None
        self.replicas: dict[int, Replica] = {}
        self.wants_stop = False
        self.is_fenced = True
        self.failed_disks: list[Uuid] = []
        self._isr_changes: dict[int, tuple[Partition, IsrChange]] = {}
        self._is_asking = False
        self._unassigned: dict[int, Uuid] = {}
        self._is_assigning = False
        sim = self.sim
        self.cluster = ClusterView(LAG_MAX_MS, self, lambda: self.epoch, lambda: sim.now)

    # --- life

    def run(self) -> None:
        """The tasks of a process that is registered."""
        self.sim.after(self.sim.rng.randint(1, LAG_MAX_MS // 2), self, self._check_lag)
        self.beat()

    def start(self) -> None:
        """A new process: it registers, reads the metadata and asks to be unfenced."""
        self.alive = True
        self.wants_stop = self.paused = False
        previous = epoch_of_clean_stop(disk.mark for disk in self.disks)
        self._register(Uuid(self.sim.rng.randbytes(16)), previous)

    def _register(self, incarnation: Uuid, previous_epoch: int) -> None:
        registration = Registration(
            broker_id=self.id,
            incarnation_id=incarnation,
            endpoints=[Endpoint("PLAINTEXT", f"b{self.id}", 9092, 0)],
            directories=[disk.id for disk in self.disks if disk.online],
            rack=None,
            features={},
            previous_epoch=previous_epoch,
        )

        life = self.life

        def decide(image: MetadataImage) -> Outcome[Any]:
            if self.life != life:  # its connection broke with the process
                raise ApiError(ErrorCode.NETWORK_EXCEPTION)
            records: list[Any] = register_broker(image, self.sim.config, registration, image.offset + 1)
            return Outcome(records, records[-1].broker_epoch)

        is_registered = False

        def registered(epoch: int) -> None:
            nonlocal is_registered
            if not is_registered:
                is_registered = True
                self.epoch = epoch
                for disk in self.disks:  # the mark goes before anything is written
                    if disk.online:
                        disk.clean_epoch = None
                self.on_image(self.sim.controller.committed)
                self.run()

        def again() -> None:
            if not is_registered:
                self._register(incarnation, previous_epoch)

        self.sim.ask(self, decide, registered)
        self.sim.after(RETRY_MS, self, again)

    def beat(self) -> None:
        sim = self.sim
        offset = -1 if self.image is None else self.image.offset
        request = BrokerHeartbeatRequest(
            broker_id=self.id,
            broker_epoch=self.epoch,
            current_metadata_offset=offset,
            want_fence=False,
            want_shut_down=self.wants_stop,
            offline_log_dirs=list(self.failed_disks),
            cordoned_log_dirs=[],
        )

        def decide(image: MetadataImage) -> Outcome[Any]:
            heartbeats = sim.controller.heartbeats
            heartbeats.on_contact(self.id, request.broker_epoch, sim.now)
            outcome = broker_heartbeat(image, request, config=sim.config, heartbeats=heartbeats)
            if outcome.response.should_shut_down:
                heartbeats.end_session(self.id, request.broker_epoch)
            return outcome

        sim.ask(self, decide, self._on_beat)
        sim.after(HEARTBEAT_MS // 4 if self.wants_stop or self.is_fenced else HEARTBEAT_MS, self, self.beat)

    def _on_beat(self, response: BrokerHeartbeatResponse) -> None:
        if response.should_shut_down and self.wants_stop:
            self.sim.faults.on_may_stop(self)
            return
        self.is_fenced = response.is_fenced
        self._maybe_assign()

    def crash(self, *, loses_unsynced: bool = False) -> None:
        """What is not synced is lost on all disks, or on none."""
        self._end()
        for disk in self.disks:
            for log in disk.logs.values():
                if log.on_crash(self.sim.rng, loses_unsynced=loses_unsynced and disk.online):
                    self.lost.add(log.index)

    def stop(self) -> None:
        """Everything is synced, and a file says so; on a disk that failed, nothing is."""
        self._end()
        for disk in self.disks:
            if disk.online and not disk.is_full:
                for log in disk.logs.values():
                    log.on_stop()
                disk.clean_epoch = self.epoch
            else:
                for log in disk.logs.values():
                    log.on_crash(self.sim.rng, loses_unsynced=False)

    def _end(self) -> None:
        self.alive = self.paused = False
        self.life += 1
        self.held.clear()
        for replica in self.replicas.values():
            replica.following = None
        self._begin()

    def wake(self) -> None:
        """The pause is over: what came meanwhile is taken in."""
        self.paused = False
        held, self.held = self.held, []
        for what in held:
            self.sim.after(0, self, what)

    # --- metadata, as `ReplicaManager` takes it in

    def on_image(self, image: MetadataImage) -> None:
        if self.image is not None and image.offset <= self.image.offset:
            return
        self.image = image
        self.cluster.on_brokers(image)
        topic = image.topics_by_id[TOPIC]
        for index, partition in topic.partitions.items():
            self._apply(topic, index, partition)
        for replica in list(self.replicas.values()):
            replica.partition.on_cluster_change()

    def _apply(self, topic: TopicImage, index: int, image: PartitionImage) -> None:
        replica = self.replicas.get(index)
        if self.id not in image.replicas:
            self.replicas.pop(index, None)
            if replica is not None:
                replica.partition.on_gone()
                replica.following = None
            for disk in self.disks:
                if disk.online:
                    disk.logs.pop(index, None)
            return
        if replica is None:
            log = self._open(index, image)
            if log is None:
                return
            replica = self.replicas[index] = Replica(self, log)
        elif replica.partition.image is image:
            return
        replica.partition.on_image(image)
        replica.follow()
        if image.directory_of(self.id) != replica.log.disk.id:
            self._unassigned[index] = replica.log.disk.id
            self._maybe_assign()

    def _open(self, index: int, image: PartitionImage) -> ModelLog | None:
        """None while its disk is missing: it must not come back empty on another one."""
        for disk in self.disks:
            if index in disk.logs:
                return disk.logs[index] if disk.online else None
        named = image.directory_of(self.id)
        online = [disk for disk in self.disks if disk.online]
        if named not in _NOWHERE_YET and len(online) < len(self.disks) and all(disk.id != named for disk in online):
            return None
        choice = [disk for disk in online if disk.id == named] or online
        if not choice:
            return None
        return self.sim.new_log(index, self.sim.rng.choice(choice))

    def log(self, index: int) -> ModelLog | None:
        """On whichever disk; also when nobody serves it."""
        return next((disk.logs[index] for disk in self.disks if index in disk.logs), None)

    def on_disk_failure(self, disk: ModelDisk) -> None:
        self.failed_disks.append(disk.id)
        for index in [index for index, replica in self.replicas.items() if replica.log.disk is disk]:
            replica = self.replicas.pop(index)
            replica.following = None
            replica.partition.on_gone()

    # --- the in-sync sets, as `IsrUpdates` sends them

    def _check_lag(self) -> None:
        for replica in list(self.replicas.values()):
            replica.partition.maybe_shrink_isr()
        self.sim.after(LAG_MAX_MS // 2, self, self._check_lag)

    def submit(self, partition: Partition, change: IsrChange) -> None:
        self.sim.counts["ISR changes wanted"] += 1
        self._isr_changes[partition.index] = partition, change
        if not self._is_asking:
            self._is_asking = True
            self.sim.after(0, self, self._send_isr_changes)

    def _send_isr_changes(self) -> None:
        """One request at a time, for all partitions; repeated until each is decided or not wanted any more."""
        batch = {index: one for index, one in self._isr_changes.items() if one[0].awaits(one[1])}
        self._isr_changes = {}
        if not batch:
            self._is_asking = False
            return
        parts = [
            PartitionData(
                partition_index=index,
                leader_epoch=change.leader_epoch,
                new_isr_with_epochs=[
                    BrokerState(broker_id=m.broker_id, broker_epoch=m.broker_epoch) for m in change.isr
                ],
                partition_epoch=change.partition_epoch,
            )
            for index, (_, change) in batch.items()
        ]
        request = AlterPartitionRequest(
            broker_id=self.id, broker_epoch=self.epoch, topics=[TopicData(topic_id=TOPIC, partitions=parts)]
        )
        is_over = False

        def answered(response: Any) -> None:
            nonlocal is_over
            if is_over:
                return
            is_over = True
            for answer in response.topics[0].partitions:
                self._on_isr_answer(*batch.pop(answer.partition_index), answer)
            go_on()

        def timed_out() -> None:
            nonlocal is_over
            if not is_over:
                is_over = True
                go_on()

        def go_on() -> None:
            self._retry_isr_changes(batch)
            self._send_isr_changes()

        self.sim.ask(self, lambda image: alter_partition(image, request, config=self.sim.config), answered)
        self.sim.after(RETRY_MS, self, timed_out)

    def _retry_isr_changes(self, batch: dict[int, tuple[Partition, IsrChange]]) -> None:
        """Nobody has answered; what came up meanwhile counts more."""
        for index, one in batch.items():
            self._isr_changes.setdefault(index, one)

    def _on_isr_answer(self, partition: Partition, change: IsrChange, answer: Any) -> None:
        code = ErrorCode(answer.error_code)
        self.sim.counts["ISR changes made" if code is ErrorCode.NONE else f"ISR changes refused: {code.name}"] += 1
        if code is ErrorCode.NONE:
            partition.on_isr_result(change, IsrResult(answer.leader_epoch, answer.partition_epoch, tuple(answer.isr)))
        elif code in _NOT_ATTEMPTED:
            partition.on_isr_refused(change)
        elif code not in _WAIT_FOR_METADATA:
            self._isr_changes.setdefault(partition.index, (partition, change))

    # --- where replicas are, as `DirectoryAssignment` tells it

    def _maybe_assign(self) -> None:
        if self.is_fenced or self._is_assigning or not self._unassigned:
            return
        wanted, self._unassigned = self._unassigned, {}
        self._is_assigning = True
        directories = [
            DirectoryData(
                id=directory,
                topics=[
                    DirectoryTopic(
                        topic_id=TOPIC,
                        partitions=[DirectoryPartition(partition_index=i) for i in wanted if wanted[i] == directory],
                    )
                ],
            )
            for directory in dict.fromkeys(wanted.values())
        ]
        request = AssignReplicasToDirsRequest(broker_id=self.id, broker_epoch=self.epoch, directories=directories)
        is_over = False

        def end(*, is_told: bool) -> None:
            nonlocal is_over
            if is_over:
                return
            is_over = True
            self._is_assigning = False
            if not is_told:
                self._unassigned = {**wanted, **self._unassigned}
            self._maybe_assign()

        self.sim.ask(
            self,
            lambda image: assign_replicas_to_directories(image, request, config=self.sim.config),
            lambda response: end(is_told=True),
        )
        self.sim.after(RETRY_MS, self, lambda: end(is_told=False))
