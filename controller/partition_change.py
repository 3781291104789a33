"""The one place that decides how a partition changes: wanted ISR, replicas or election in, one record out.

Every change of a partition (a broker that comes or goes, AlterPartition, a reassignment, an election on request) says
what it wants as a ``Target`` and gets the record from ``change_partition``. So these hold whatever the cause: a
reassignment ends in the very change that completes it; a leader is chosen from the ISR or, when that is empty, from the
ELR (KIP-966); a leader that loses a replica of its partition gets a new leader epoch; and nothing is written when
nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from controller.delta import NO_LEADER_CHANGE
from controller.image import EMPTY, LEADER_RECOVERING, NO_LEADER, PartitionImage
from controller.record_versions import DIRECTORY_ASSIGNMENT_LEVEL, LATEST_METADATA_VERSION, NO_EPOCH_BUMP_LEVEL
from protocol.metadata.partition_change_record import PartitionChangeRecord
from protocol.uuids import DIRECTORY_UNASSIGNED, Uuid

_NO_RECOVERY_CHANGE: Final = -1


class Election(Enum):
    """Which replica to prefer, and how far to go when no complete one is up."""

    ONLINE = auto()
    """The present leader if it may go on, else the first complete replica."""
    PREFERRED = auto()
    """The first replica if it is complete, even if another leads well."""
    UNCLEAN = auto()
    """As ONLINE, but rather an incomplete replica than none: acknowledged records may be lost."""


class Rules(NamedTuple):
    """What a change depends on besides the partition.

    ``may_lead`` says whose broker and directory are up; ``min_isr`` is the topic's, never more than there are replicas;
    ``default_directory`` is where a replica that is new on a broker will be.
    """

    may_lead: Callable[[int], bool]
    min_isr: int
    with_elr: bool
    metadata_version: int = LATEST_METADATA_VERSION
    default_directory: Callable[[int], Uuid] = lambda replica: DIRECTORY_UNASSIGNED


class Target(NamedTuple):
    """What is wanted; None leaves a field as it is. The replicas in ``lost`` stopped uncleanly: not eligible.

    Those in ``emptied`` begin anew on another disk: not eligible either, and not to be taken back as the last leader.
    """

    isr: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    adding: tuple[int, ...] | None = None
    removing: tuple[int, ...] | None = None
    election: Election = Election.ONLINE
    leader_recovery_state: int | None = None
    lost: Collection[int] = ()
    emptied: Collection[int] = ()
    directories: Mapping[int, Uuid] = EMPTY


class Reassignment(NamedTuple):
    """A replica set on its way: ``replicas`` is what there is meanwhile, the target first."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def in_progress(self) -> bool:
        return bool(self.adding or self.removing)


def change_partition(
    topic_id: Uuid, partition_id: int, partition: PartitionImage, rules: Rules, target: Target
) -> PartitionChangeRecord | None:
    """A record of what differs afterwards; None if nothing does. Naming the leader in it raises the leader epoch."""
    isr = partition.isr if target.isr is None else target.isr
    plan = Reassignment(
        partition.replicas if target.replicas is None else target.replicas,
        partition.adding_replicas if target.adding is None else target.adding,
        partition.removing_replicas if target.removing is None else target.removing,
    )
    isr, plan = _maybe_complete(isr, plan)
    record = PartitionChangeRecord(partition_id=partition_id, topic_id=topic_id)
    if not set(target.emptied).isdisjoint(partition.last_known_elr):
        rest = tuple(replica for replica in partition.last_known_elr if replica not in target.emptied)
        partition = partition._replace(last_known_elr=rest)
        record.last_known_elr = list(rest)
    elr = _eligible(partition, plan.replicas, isr, rules, {*target.lost, *target.emptied})
    leader, is_unclean = _elect(partition, plan.replicas, isr, elr, rules, target.election)
    recovery = partition.leader_recovery_state if target.leader_recovery_state is None else target.leader_recovery_state
    if leader != partition.leader:
        record.leader = leader
        if is_unclean:
            isr, elr = (leader,), ()
            if partition.leader_recovery_state != LEADER_RECOVERING:
                record.leader_recovery_state = LEADER_RECOVERING
        elif leader in elr:
            isr, elr = (leader,), tuple(replica for replica in elr if replica != leader)
    elif not set(partition.replicas) <= set(plan.replicas):
        record.leader = partition.leader  # whoever is no longer a replica must notice: a new leader epoch
    if elr != partition.elr:
        record.eligible_leader_replicas = list(elr)
    # Without eligible replicas the last member stays in the ISR: it is the only one known to be complete.
    if isr != partition.isr and (isr or rules.with_elr):
        record.isr = list(isr)
    _maybe_name_leader_on_shrink(record, partition, rules.metadata_version)
    if rules.with_elr:
        _note_last_leader(record, partition)
    _set_assignment(record, partition, plan, target.directories, rules)
    if recovery != partition.leader_recovery_state:
        record.leader_recovery_state = recovery
    return None if _is_empty(record) else record


def _maybe_complete(isr: tuple[int, ...], plan: Reassignment) -> tuple[tuple[int, ...], Reassignment]:
    """The reassignment is over as soon as all new replicas are in sync and someone is left without the old ones.

    One that lowers the replication factor also waits until all that stay are in sync.
    """
    if not plan.in_progress:
        return isr, plan
    rest = tuple(replica for replica in isr if replica not in plan.removing)
    replicas = tuple(replica for replica in plan.replicas if replica not in plan.removing)
    if plan.removing and not (rest and replicas):
        return isr, plan
    if not set(plan.adding) <= set(rest):
        return isr, plan
    if len(plan.adding) < len(plan.removing) and not set(replicas) <= set(rest):
        return isr, plan
    return rest, Reassignment(replicas, (), ())


def _eligible(
    partition: PartitionImage,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    rules: Rules,
    lost: Collection[int],
) -> tuple[int, ...]:
    """Who has all acknowledged records besides the ISR; nobody is needed while that is min.insync.replicas strong.

    Only replicas count. Here Kafka 4.3.1 differs: it keeps brokers eligible that a reassignment took the partition away
    from. If it is given back to one of them, with its log deleted meanwhile, that one could be elected, and everything
    would be lost.
    """
    if not rules.with_elr or len(isr) >= rules.min_isr:
        return ()
    complete = {*partition.elr, *partition.isr} & set(partition.replicas) & set(replicas)
    return tuple(sorted(complete - {*isr, *lost}))


def _elect(
    partition: PartitionImage,
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    rules: Rules,
    election: Election,
) -> tuple[int, bool]:
    """(leader, whether that election is unclean)."""
    complete = isr or elr
    first = replicas[:1] if election is Election.PREFERRED else ()
    for replica in (*first, partition.leader, *replicas):
        if replica in complete and rules.may_lead(replica):
            return replica, False
    if rules.with_elr and not complete and len(partition.last_known_elr) == 1:
        last_leader = partition.last_known_elr[0]
        if rules.may_lead(last_leader):
            return last_leader, True
    if election is Election.UNCLEAN:
        for replica in replicas:
            if rules.may_lead(replica):
                return replica, True
    return NO_LEADER, False


def _maybe_name_leader_on_shrink(record: PartitionChangeRecord, partition: PartitionImage, level: int) -> None:
    """Brokers before 3.6 notice a smaller ISR only by a new leader epoch (KAFKA-15021)."""
    if level >= NO_EPOCH_BUMP_LEVEL or record.leader != NO_LEADER_CHANGE or record.isr is None:
        return
    if not set(partition.isr) <= set(record.isr):
        record.leader = partition.leader


def _note_last_leader(record: PartitionChangeRecord, partition: PartitionImage) -> None:
    """last_known_elr holds the last leader from the moment there is none until there is one again."""
    if record.leader == NO_LEADER and not partition.last_known_elr:
        record.last_known_elr = [partition.leader]
    elif record.leader >= 0 and partition.last_known_elr:
        record.last_known_elr = []


def _set_assignment(
    record: PartitionChangeRecord,
    partition: PartitionImage,
    plan: Reassignment,
    assigned: Mapping[int, Uuid],
    rules: Rules,
) -> None:
    if plan.replicas:
        if rules.metadata_version >= DIRECTORY_ASSIGNMENT_LEVEL:
            known = dict(zip(partition.replicas, partition.directories, strict=False)) | dict(assigned)
            directories = [
                known[replica] if replica in known else rules.default_directory(replica) for replica in plan.replicas
            ]
            if directories != list(partition.directories):
                record.directories = directories
        if plan.replicas != partition.replicas:
            record.replicas = list(plan.replicas)
    if plan.removing != partition.removing_replicas:
        record.removing_replicas = list(plan.removing)
    if plan.adding != partition.adding_replicas:
        record.adding_replicas = list(plan.adding)


def _is_empty(record: PartitionChangeRecord) -> bool:
    return (
        record.isr is None
        and record.leader == NO_LEADER_CHANGE
        and record.replicas is None
        and record.adding_replicas is None
        and record.removing_replicas is None
        and record.leader_recovery_state == _NO_RECOVERY_CHANGE
        and record.directories is None
        and record.eligible_leader_replicas is None
        and record.last_known_elr is None
    )
