"""Changes of a partition, judged by Apache Kafka's PartitionChangeBuilder: elections and reassignments."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway
from support.kafka_metadata import NEW_DIRECTORY, TOPIC_ID, KafkaPartitionChanges

from controller.image import NO_LEADER, PartitionImage
from controller.partition_change import Election, Rules, Target, change_partition
from controller.reassignments import plan_reassignment
from protocol.uuids import Uuid

pytestmark = pytest.mark.stock
LEVELS = (30, 30, 30, 17, 14, 11)  # directories came with 17, and up to 11 a smaller ISR needs a new leader epoch

Case = tuple[PartitionImage, Rules, set[int], Target]


def _partition(random: Random, *, with_elr: bool, level: int) -> PartitionImage:
    replicas = tuple(random.sample(range(1, 8), random.randrange(1, 6)))
    isr = tuple(random.sample(replicas, random.randrange(0 if with_elr else 1, len(replicas) + 1)))
    rest = [replica for replica in replicas if replica not in isr]
    elr = tuple(sorted(random.sample(rest, random.randrange(len(rest) + 1)))) if with_elr else ()
    leader = random.choice([*isr, NO_LEADER]) if isr and not with_elr else (random.choice(isr) if isr else NO_LEADER)
    adding, removing = (), ()
    if random.random() < 0.4:
        moving = random.sample(replicas, random.randrange(len(replicas)))
        cut = random.randrange(len(moving) + 1)
        adding, removing = tuple(sorted(moving[:cut])), tuple(sorted(moving[cut:]))
    return PartitionImage(
        replicas=replicas,
        isr=isr,
        elr=elr,
        last_known_elr=(random.choice(replicas),) if with_elr and not isr and random.random() < 0.6 else (),
        adding_replicas=adding,
        removing_replicas=removing,
        directories=tuple(Uuid(bytes([replica]) * 16) for replica in replicas),
        leader=leader,
        leader_epoch=3,
        partition_epoch=5,
        leader_recovery_state=random.randrange(2),
    )


def _case(random: Random) -> Case:
    with_elr, level = random.random() < 0.7, random.choice(LEVELS)
    with_elr = with_elr and level >= 23
    partition = _partition(random, with_elr=with_elr, level=level)
    replicas = partition.replicas
    leaving = random.choice([*replicas, 0])
    up = {replica for replica in replicas if random.random() < 0.6} - {leaving}
    rules = Rules(
        up.__contains__, random.randrange(1, len(replicas) + 1), with_elr, level, lambda replica: NEW_DIRECTORY
    )
    target = Target(
        isr=tuple(r for r in partition.isr if r != leaving),
        election=random.choice(list(Election)),
        lost=(leaving,) if random.random() < 0.4 and leaving else (),
    )
    if random.random() < 0.4:  # the leader reports an ISR, or someone wants other replicas
        grown = random.sample(replicas, random.randrange(1, len(replicas) + 1))
        target = target._replace(isr=tuple(grown), leader_recovery_state=random.randrange(2))
    if random.random() < 0.3:
        wanted = tuple(random.sample(range(1, 8), random.randrange(1, 5)))
        removing = tuple(sorted(set(replicas) - set(wanted)))
        adding = tuple(sorted(set(wanted) - set(replicas)))
        target = target._replace(replicas=(*wanted, *removing), removing=removing, adding=adding)
    elif partition.adding_replicas:  # another plan instead: what only the first one wanted is dropped at once
        plan = plan_reassignment(partition, random.sample(range(1, 8), random.randrange(1, 5)))
        isr = tuple(replica for replica in partition.isr if replica in plan.replicas)
        if isr:  # or it would be refused
            target = target._replace(isr=isr, replicas=plan.replicas, removing=plan.removing, adding=plan.adding)
    if random.random() < 0.2:
        target = target._replace(directories={random.choice(replicas): Uuid(b"d" * 16)})
    return partition, rules, up, target


def _without_strangers(theirs: Any, partition: PartitionImage) -> tuple[Any, bool]:
    """Kafka keeps brokers eligible that are no longer replicas; we do not (see ``partition_change._eligible``)."""
    if theirs is None:
        return None, False
    replicas = partition.replicas if theirs.replicas is None else tuple(theirs.replicas)
    eligible = partition.elr if theirs.eligible_leader_replicas is None else tuple(theirs.eligible_leader_replicas)
    kept = [replica for replica in eligible if replica in replicas]
    theirs.eligible_leader_replicas = None if tuple(kept) == partition.elr else kept
    return theirs, len(kept) < len(eligible)


def test_partitions_change_as_in_kafka(jvm: JavaGateway) -> None:
    """Random partitions, random wishes: the same change record, or none, in each of 600 cases."""
    random, kafka = Random(4), KafkaPartitionChanges(jvm)
    completed = strangers = dropped = 0
    for _ in range(600):
        case = partition, rules, up, target = _case(random)
        ours = change_partition(TOPIC_ID, 0, partition, rules, target)
        theirs, differs = _without_strangers(kafka.change(partition, rules, up, target), partition)
        strangers += differs
        dropped += target.replicas is not None and not set(partition.replicas) <= set(target.replicas)
        assert repr(ours) == repr(theirs), case
        completed += ours is not None and bool(partition.adding_replicas) and ours.adding_replicas == []
    assert completed > 20 and dropped > 20  # the cases reach the end of reassignments, and plans that replace others
    assert 0 < strangers < 60
