"""Placement of replicas beside Apache Kafka's StripedReplicaPlacer: the same replicas from the same random numbers."""

from __future__ import annotations

from random import Random

import pytest
from py4j.java_gateway import JavaGateway
from support.java_random import JavaRandom
from support.metadata import broker_record, cluster

from controller.placement import place
from protocol.errors import ApiError

pytestmark = pytest.mark.stock


def kafkas(
    jvm: JavaGateway, seed: int, partitions: int, factor: int, brokers: dict[int, tuple[str | None, bool]]
) -> object:
    placement = jvm.jvm.org.apache.kafka.metadata.placement
    util = jvm.jvm.java.util
    usable = util.ArrayList()
    for broker_id, (rack, fenced) in brokers.items():
        usable.add(placement.UsableBroker(broker_id, util.Optional.ofNullable(rack), fenced))
    racks = jvm.jvm.java.lang.Class.forName("org.apache.kafka.metadata.placement.StripedReplicaPlacer$RackList")
    constructor = racks.getDeclaredConstructors()[0]
    constructor.setAccessible(True)
    arguments = jvm.new_array(jvm.jvm.java.lang.Object, 2)
    arguments[0], arguments[1] = util.Random(seed), usable.iterator()
    listed = constructor.newInstance(arguments)
    classes = jvm.new_array(jvm.jvm.java.lang.Class, 1)
    classes[0] = jvm.jvm.java.lang.Integer.TYPE
    method = racks.getDeclaredMethod("place", classes)
    method.setAccessible(True)
    wanted = jvm.new_array(jvm.jvm.java.lang.Object, 1)
    wanted[0] = factor
    return [tuple(method.invoke(listed, wanted)) for _ in range(partitions)]


def test_replicas_are_placed_as_by_kafka(jvm: JavaGateway) -> None:
    """Random clusters with and without racks, some brokers fenced: 60 of them, 25 partitions each."""
    random = Random(11)
    for seed in range(60):
        names: list[str | None] = [None] if random.random() < 0.3 else [None, "a", "b", "c", "d"][random.randrange(2) :]
        brokers = {
            broker_id: (random.choice(names), random.random() < 0.25)
            for broker_id in sorted(random.sample(range(1, 30), random.randrange(1, 9)))
        }
        if all(fenced for _, fenced in brokers.values()):
            continue
        factor = random.randrange(1, len(brokers) + 1)
        image = cluster(*(broker_record(i, rack=rack, fenced=fenced) for i, (rack, fenced) in brokers.items()))
        ours = place(25, factor, image.brokers.values(), JavaRandom(seed))
        assert ours == kafkas(jvm, seed, 25, factor, brokers), (seed, factor, brokers)


def test_a_broker_that_leaves_gets_nothing_new() -> None:
    image = cluster(broker_record(1), broker_record(2, in_controlled_shutdown=True), broker_record(3))
    assert all(set(replicas) == {1, 3} for replicas in place(9, 2, image.brokers.values(), Random(1)))
    with pytest.raises(ApiError, match="only 2 broker"):
        place(1, 3, image.brokers.values(), Random(1))


def test_a_failed_broker_leaves_its_work_to_many() -> None:
    """The shuffle after each stripe: the partitions of one leader have different second replicas."""
    image = cluster(*(broker_record(i) for i in range(1, 7)))
    placed = place(120, 3, image.brokers.values(), Random(5))
    for leader in range(1, 7):
        assert {replicas[1] for replicas in placed if replicas[0] == leader} == set(range(1, 7)) - {leader}
