"""Who leads the partitions of a cluster when brokers and log directories come and go.

A replica may lead without losing acknowledged records if it is in the ISR or, when that is empty, in the ELR: a
member of the last ISR that was at least min.insync.replicas strong (KIP-966). A replica whose broker stopped uncleanly
may have lost the tail of its log, so it leaves both. When nobody is left, the last leader is taken back once it
returns; such an election is unclean, and the partition is marked as recovering.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from config.broker import BrokerConfig
from controller.assignment import default_directory
from controller.image import (
    NO_LEADER,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from controller.partition_change import Election, Rules, Target, change_partition
from protocol.metadata.partition_change_record import PartitionChangeRecord
from protocol.schema import Message
from protocol.uuids import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Uuid

_NOWHERE_YET: Final = (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING)
MIN_ISR: Final = "min.insync.replicas"
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"


class Elections:
    """The rules applied to one image; ``config`` supplies the defaults of topic settings."""

    def __init__(self, image: MetadataImage, config: BrokerConfig) -> None:
        self._image = image
        self._config = config
        self._with_elr = image.features.is_elr_enabled

    def on_inactive(self, broker_id: int) -> list[Message]:
        """The broker is fenced or shuts down: it leaves every ISR, and leadership goes to others or to nobody."""
        return self._without(broker_id, lambda partition: broker_id in partition.isr, lost=())

    def on_unclean_shutdown(self, broker_id: int) -> list[Message]:
        """The broker returns without having stopped properly: its replicas are no longer eligible to lead."""
        if not self._with_elr:
            return self.on_inactive(broker_id)
        return self._without(
            broker_id, lambda partition: broker_id in partition.isr or broker_id in partition.elr, lost=(broker_id,)
        )

    def on_unregistered(self, broker_id: int) -> list[Message]:
        """The broker is forgotten. It stays eligible where it was: what comes back under its id has to prove itself."""
        return self._without(
            broker_id, lambda partition: broker_id in partition.isr or broker_id in partition.elr, lost=()
        )

    def on_unfenced(self) -> list[Message]:
        """A broker is back: what has no leader may get one."""
        return self._each(lambda partition: partition.leader == NO_LEADER, lambda partition: partition.isr)

    def on_directories_offline(self, broker_id: int, directories: Sequence[Uuid]) -> list[Message]:
        """The broker lost log directories: it leaves the ISRs of what they held, and leads none of it."""
        lost = set(directories)
        return self._without(broker_id, lambda partition: partition.directory_of(broker_id) in lost, lost=())

    def without_replicas(self, broker_id: int, partitions: Sequence[tuple[TopicImage, int]]) -> list[Message]:
        """The broker said that its replicas of these partitions are in a directory that is offline."""
        found = ((topic, index, topic.partitions[index]) for topic, index in partitions)
        return self._changes_without(broker_id, found, lost=())

    def change(
        self, topic: TopicImage, partition_id: int, target: Target, *, without: int = NO_LEADER
    ) -> PartitionChangeRecord | None:
        """What it takes to bring a partition to ``target``; ``without`` may not lead."""
        partition = topic.partitions[partition_id]
        rules = self._rules(topic, _moved(partition, target.directories), without)
        return change_partition(topic.topic_id, partition_id, partition, rules, target)

    def usual_election(self, topic: TopicImage) -> Election:
        """The election where none was asked for in particular: how far it goes is the topic's setting."""
        return Election.UNCLEAN if self.unclean_allowed(topic) else Election.ONLINE

    def unclean_allowed(self, topic: TopicImage) -> bool:
        """The topic's own value, the cluster-wide dynamic one, this node's."""
        configured = self._setting(topic, UNCLEAN_ELECTION)
        if configured is None:
            return self._config.unclean_leader_election_enable
        return configured.strip().lower() == "true"

    def _without(
        self, broker_id: int, concerns: Callable[[PartitionImage], bool], lost: tuple[int, ...]
    ) -> list[Message]:
        return self._changes_without(broker_id, (item for item in self._all_partitions() if concerns(item[2])), lost)

    def _changes_without(
        self, broker_id: int, partitions: Iterator[tuple[TopicImage, int, PartitionImage]], lost: tuple[int, ...]
    ) -> list[Message]:
        changes: list[Message] = []
        for topic, partition_id, partition in partitions:
            isr = tuple(member for member in partition.isr if member != broker_id)
            target = Target(isr=isr, election=self.usual_election(topic), lost=lost)
            change = self.change(topic, partition_id, target, without=broker_id)
            if change is not None:
                changes.append(change)
        return changes

    def _each(
        self, concerns: Callable[[PartitionImage], bool], isr_of: Callable[[PartitionImage], tuple[int, ...]]
    ) -> list[Message]:
        changes: list[Message] = []
        for topic, partition_id, partition in self._all_partitions():
            if concerns(partition):
                target = Target(isr=isr_of(partition), election=self.usual_election(topic))
                change = self.change(topic, partition_id, target)
                if change is not None:
                    changes.append(change)
        return changes

    def _all_partitions(self) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
        for topic in self._image.topics_by_name.values():
            for partition_id, partition in topic.partitions.items():
                yield topic, partition_id, partition

    def _rules(self, topic: TopicImage, partition: PartitionImage, without: int = NO_LEADER) -> Rules:
        return Rules(
            lambda replica: replica != without and self._may_lead(partition, replica),
            self._min_isr(topic, partition),
            self._with_elr,
            self._image.features.metadata_version,
            lambda replica: default_directory(self._image.brokers[replica]),
        )

    def _may_lead(self, partition: PartitionImage, broker_id: int) -> bool:
        """Its broker is up, and so is the log directory that holds the replica."""
        broker = self._image.brokers.get(broker_id)
        if broker is None or not broker.is_active or broker_id not in partition.replicas:
            return False
        directory = partition.directory_of(broker_id)
        if directory in _NOWHERE_YET:
            return True
        # A registration from before KIP-858 names no directories: then nobody knows of a lost one.
        return directory != DIRECTORY_LOST and (not broker.directories or directory in broker.directories)

    def _min_isr(self, topic: TopicImage, partition: PartitionImage) -> int:
        """A partition with fewer replicas than min.insync.replicas needs all of them, not more than there are.

        Here Kafka 4.3.1 differs: it counts the replicas of partition 0, while the leader of another partition counts
        that one's. Where a reassignment has left partition 0 with fewer, the leaders of the others stop to commit while
        the controller believes that they go on, and lets go of replicas that have everything.
        """
        configured = self._setting(topic, MIN_ISR)
        wanted = self._config.min_insync_replicas if configured is None else int(configured)
        return min(wanted, len(partition.replicas))

    def _setting(self, topic: TopicImage, name: str) -> str | None:
        configured = self._image.topic_configs(topic.name).get(name)
        return self._image.default_broker_configs.get(name) if configured is None else configured


def _moved(partition: PartitionImage, directories: Mapping[int, Uuid]) -> PartitionImage:
    """With the replicas where they are told to be: one that is in a directory that is up may lead from then on."""
    if not directories:
        return partition
    known = zip(partition.replicas, partition.directories, strict=False)
    return partition._replace(directories=tuple(directories.get(replica, before) for replica, before in known))
