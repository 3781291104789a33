"""Who leads a partition when brokers come and go.

A replica may lead without losing acknowledged records if it is in the ISR or, when that is empty, in the ELR: a
member of the last ISR that was at least min.insync.replicas strong (KIP-966). A replica whose broker stopped uncleanly
may have lost the tail of its log, so it leaves both. When nobody is left, the last leader is taken back once it
returns; such an election is unclean, and the partition is marked as recovering.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final, NamedTuple

from config.broker import BrokerConfig
from controller.delta import NO_LEADER_CHANGE
from controller.image import (
    LEADER_RECOVERING,
    NO_LEADER,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from controller.record_versions import NO_EPOCH_BUMP_LEVEL
from protocol.metadata.partition_change_record import PartitionChangeRecord
from protocol.schema import Message
from protocol.uuids import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED

_NOWHERE_YET: Final = (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING)


class Leadership(NamedTuple):
    """Those fields of a partition that elections change."""

    isr: tuple[int, ...]
    leader: int
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    leader_recovery_state: int


def leadership_of(partition: PartitionImage) -> Leadership:
    return Leadership(
        partition.isr,
        partition.leader,
        partition.elr,
        partition.last_known_elr,
        partition.leader_recovery_state,
    )


def partition_change(
    topic: TopicImage, partition_id: int, before: PartitionImage, after: Leadership, *, bump_on_shrink: bool = False
) -> PartitionChangeRecord | None:
    """A record of what differs; None if nothing does. Naming the leader in it raises the leader epoch.

    ``bump_on_shrink``: brokers before 3.6 notice a smaller ISR only by a new leader epoch (KAFKA-15021).
    """
    if after == leadership_of(before):
        return None
    shrunk = not set(before.isr) <= set(after.isr)
    named = after.leader != before.leader or (bump_on_shrink and shrunk)
    return PartitionChangeRecord(
        partition_id=partition_id,
        topic_id=topic.topic_id,
        isr=list(after.isr) if after.isr != before.isr else None,
        leader=after.leader if named else NO_LEADER_CHANGE,
        eligible_leader_replicas=list(after.elr) if after.elr != before.elr else None,
        last_known_elr=list(after.last_known_elr) if after.last_known_elr != before.last_known_elr else None,
        leader_recovery_state=after.leader_recovery_state
        if after.leader_recovery_state != before.leader_recovery_state
        else -1,
    )


class Rules(NamedTuple):
    """What an election depends on besides the partition. ``may_lead`` says who is up; ``min_isr`` is the topic's,
    never more than there are replicas."""

    may_lead: Callable[[int], bool]
    min_isr: int
    with_elr: bool
    unclean_allowed: bool = False


def elect(partition: PartitionImage, isr: tuple[int, ...], rules: Rules, lost: Collection[int] = ()) -> Leadership:
    """The leadership after the ISR became ``isr``; the replicas in ``lost`` stopped uncleanly.

    Without eligible replicas the last member stays in the ISR: it is the only one known to be complete.
    """
    elr = partition.elr if rules.with_elr else ()
    if rules.with_elr:
        elr = ()
        if len(isr) < rules.min_isr:
            elr = tuple(sorted({*partition.elr, *partition.isr} - {*isr, *lost}))
    leader, is_unclean = _choose(partition, isr, elr, rules)
    recovery = partition.leader_recovery_state
    if is_unclean:
        isr, elr, recovery = (leader,), (), LEADER_RECOVERING
    elif leader != partition.leader and leader in elr:
        isr, elr = (leader,), _minus(elr, leader)
    if not isr and not rules.with_elr:
        isr = partition.isr
    return Leadership(isr, leader, elr, _last_known(partition, leader, rules), recovery)


def _choose(partition: PartitionImage, isr: tuple[int, ...], elr: tuple[int, ...], rules: Rules) -> tuple[int, bool]:
    """(leader, whether that election is unclean); the present leader before others, the preferred before the rest."""
    complete = isr or elr
    for replica in (partition.leader, *partition.replicas):
        if replica in complete and rules.may_lead(replica):
            return replica, False
    if rules.with_elr and not complete and len(partition.last_known_elr) == 1:
        last_leader = partition.last_known_elr[0]
        if rules.may_lead(last_leader):
            return last_leader, True
    if rules.unclean_allowed:
        for replica in partition.replicas:
            if rules.may_lead(replica):
                return replica, True
    return NO_LEADER, False


def _last_known(partition: PartitionImage, leader: int, rules: Rules) -> tuple[int, ...]:
    """The field holds the last leader from the moment there is none until there is one again."""
    if rules.with_elr and leader != partition.leader:
        if leader != NO_LEADER:
            return ()
        if not partition.last_known_elr:
            return (partition.leader,)
    return partition.last_known_elr


class Elections:
    """The rules applied to one image; ``config`` supplies the defaults of topic settings."""

    def __init__(self, image: MetadataImage, config: BrokerConfig) -> None:
        self._image = image
        self._config = config
        self._with_elr = image.features.is_elr_enabled
        self._bump_on_shrink = image.features.metadata_version < NO_EPOCH_BUMP_LEVEL

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

    def on_unfenced(self, broker_id: int) -> list[Message]:
        """The broker is back: what has no leader may get one."""
        changes: list[Message] = []
        for topic, partition_id, partition in self._all_partitions():
            if partition.leader == NO_LEADER:
                after = elect(partition, partition.isr, self._rules(topic, partition))
                self._add(changes, topic, partition_id, partition, after)
        return changes

    def _without(
        self, broker_id: int, concerns: Callable[[PartitionImage], bool], lost: tuple[int, ...]
    ) -> list[Message]:
        changes: list[Message] = []
        for topic, partition_id, partition in self._all_partitions():
            if concerns(partition):
                rules = self._rules(topic, partition, without=broker_id)
                after = elect(partition, _minus(partition.isr, broker_id), rules, lost)
                self._add(changes, topic, partition_id, partition, after)
        return changes

    def _add(
        self, changes: list[Message], topic: TopicImage, partition_id: int, before: PartitionImage, after: Leadership
    ) -> None:
        change = partition_change(topic, partition_id, before, after, bump_on_shrink=self._bump_on_shrink)
        if change is not None:
            changes.append(change)

    def _all_partitions(self) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
        for topic in self._image.topics_by_name.values():
            for partition_id, partition in topic.partitions.items():
                yield topic, partition_id, partition

    def _rules(self, topic: TopicImage, partition: PartitionImage, without: int = NO_LEADER) -> Rules:
        return Rules(
            lambda replica: replica != without and self._may_lead(partition, replica),
            self._min_isr(topic, partition),
            self._with_elr,
            self._unclean_allowed(topic),
        )

    def _may_lead(self, partition: PartitionImage, broker_id: int) -> bool:
        """Its broker is up, and so is the log directory that holds the replica."""
        broker = self._image.brokers.get(broker_id)
        if broker is None or not broker.is_active:
            return False
        directory = partition.directory_of(broker_id)
        if directory in _NOWHERE_YET or not broker.directories:
            return True
        return directory != DIRECTORY_LOST and directory in broker.directories

    def _min_isr(self, topic: TopicImage, partition: PartitionImage) -> int:
        """A partition with fewer replicas than min.insync.replicas needs all of them, not more than there are."""
        configured = self._image.topic_configs(topic.name).get("min.insync.replicas")
        if configured is None:
            configured = self._image.default_broker_configs.get("min.insync.replicas")
        wanted = self._config.min_insync_replicas if configured is None else int(configured)
        return min(wanted, len(partition.replicas))

    def _unclean_allowed(self, topic: TopicImage) -> bool:
        configured = self._image.topic_configs(topic.name).get("unclean.leader.election.enable")
        if configured is None:
            return self._config.unclean_leader_election_enable
        return configured.strip().lower() == "true"


def _minus(members: tuple[int, ...], member: int) -> tuple[int, ...]:
    return tuple(other for other in members if other != member)
