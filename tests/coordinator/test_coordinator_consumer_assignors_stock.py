"""Random groups, assigned by our assignors and by Kafka's: the same result, over several rounds of change."""

from __future__ import annotations

import random
from typing import Any

import pytest
from py4j.java_gateway import JavaGateway

from broker.coordinator.group.consumer.assignors import ASSIGNORS, Assignment, GroupSpec, MemberSpec
from broker.coordinator.group.consumer.metadata_hash import MetadataHashes, topic_hash
from controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from protocol.uuids import Uuid

pytestmark = pytest.mark.stock


class Oracle:
    """Kafka's assignors over a metadata image made of the given topics."""

    def __init__(self, gateway: JavaGateway) -> None:
        self.gateway = gateway
        self.jvm = gateway.jvm
        self.kafka = gateway.jvm.org.apache.kafka
        self.group = self.kafka.coordinator.group
        self.optional = gateway.jvm.java.util.Optional

    def uuid(self, uuid: Uuid) -> Any:
        return self.kafka.common.Uuid.fromString(str(uuid))

    def image(self, topics: dict[Uuid, tuple[str, list[list[int]]]], racks: dict[int, str]) -> Any:
        empty = self.kafka.image.MetadataImage.EMPTY
        delta = self.kafka.image.MetadataDelta.Builder().setImage(empty).build()
        metadata = self.kafka.common.metadata
        for broker, rack in racks.items():
            delta.replay(metadata.RegisterBrokerRecord().setBrokerId(broker).setRack(rack).setFenced(False))
        for topic_id, (name, partitions) in topics.items():
            delta.replay(metadata.TopicRecord().setName(name).setTopicId(self.uuid(topic_id)))
            for partition, replicas in enumerate(partitions):
                record = metadata.PartitionRecord().setTopicId(self.uuid(topic_id)).setPartitionId(partition)
                record.setReplicas(replicas).setIsr(replicas).setLeader(replicas[0])
                record.setDirectories([self.uuid(Uuid(bytes(15) + b"\x01"))] * len(replicas))
                delta.replay(record)
        image = delta.apply(self.kafka.image.MetadataProvenance.EMPTY)
        return self.kafka.coordinator.common.runtime.KRaftCoordinatorMetadataImage(image)

    def assign(self, name: str, spec: GroupSpec) -> dict[str, Assignment]:
        topics = {
            topic_id: (f"t{number}", [[0]] * count)
            for number, (topic_id, count) in enumerate(spec.partition_counts.items())
        }
        image = self.image(topics, {})
        inverted: dict[Any, dict[int, str]] = {}
        members = {}
        for member_id, member in spec.members.items():
            held = {self.uuid(topic): set(partitions) for topic, partitions in member.assigned.items()}
            for topic, partitions in held.items():
                inverted.setdefault(topic, {}).update(dict.fromkeys(partitions, member_id))
            members[member_id] = self.group.modern.MemberSubscriptionAndAssignmentImpl(
                self.optional.empty(),
                self.optional.ofNullable(member.instance_id),
                {self.uuid(topic) for topic in member.subscribed},
                self.group.modern.Assignment(held),
            )
        kind = self.group.api.assignor.SubscriptionType
        group_spec = self.group.modern.GroupSpecImpl(
            members, kind.HOMOGENEOUS if spec.is_homogeneous else kind.HETEROGENEOUS, inverted, self.optional.empty()
        )
        describer = self.group.modern.SubscribedTopicDescriberImpl(image)
        assignor = {"range": self.group.assignor.RangeAssignor, "uniform": self.group.assignor.UniformAssignor}[name]()
        result: dict[str, Assignment] = {}
        for member_id, held in dict(assignor.assign(group_spec, describer).members()).items():
            result[member_id] = {
                Uuid.parse(topic.toString()): frozenset(int(partition) for partition in partitions)
                for topic, partitions in dict(held.partitions()).items()
            }
        return result


def random_uuid(rng: random.Random) -> Uuid:
    return Uuid(rng.randbytes(16))


def evolve(rng: random.Random, topics: dict[Uuid, int], members: dict[str, MemberSpec]) -> GroupSpec:
    """One random change: somebody comes, goes or resubscribes, a topic grows."""
    for _ in range(rng.randint(1, 3)):
        action = rng.random()
        if action < 0.5 and len(members) < 10:
            instance = f"i{rng.randint(0, 99)}-{len(members)}" if rng.random() < 0.3 else None
            wanted = frozenset(rng.sample(sorted(topics), rng.randint(0 if len(members) else 1, len(topics))))
            members[random_uuid(rng).hex()] = MemberSpec(instance, wanted, {})
        elif action < 0.7 and len(members) > 1:
            del members[rng.choice(sorted(members))]
        elif action < 0.85:
            topic = rng.choice(sorted(topics))
            topics[topic] = min(11, topics[topic] + rng.randint(1, 4))
        elif members:
            member_id = rng.choice(sorted(members))
            wanted = frozenset(rng.sample(sorted(topics), rng.randint(1, len(topics))))
            members[member_id] = members[member_id]._replace(subscribed=wanted)
    return GroupSpec(members, False, topics)


@pytest.mark.parametrize("name", ["range", "uniform"])
@pytest.mark.parametrize("homogeneous", [True, False])
def test_assignments_are_kafkas(jvm: JavaGateway, name: str, homogeneous: bool) -> None:
    """Groups of up to ten members: within that size the order of Java's hash maps is the same on every JVM."""
    oracle = Oracle(jvm)
    for seed in range(8):
        rng = random.Random(f"{name} {homogeneous} {seed}")
        topics = {random_uuid(rng): rng.randint(1, 11) for _ in range(rng.randint(1, 5))}
        members: dict[str, MemberSpec] = {}
        for step in range(8):
            spec = evolve(rng, topics, members)
            if homogeneous:
                wanted = frozenset(topics)
                members = {key: member._replace(subscribed=wanted) for key, member in members.items()}
                spec = GroupSpec(members, True, topics)
            if not members:
                continue
            ours, theirs = ASSIGNORS[name](spec), oracle.assign(name, spec)
            assert ours == theirs, f"seed {seed} step {step}: {spec}"
            members = {key: member._replace(assigned=ours.get(key, {})) for key, member in members.items()}


def test_metadata_hash_is_kafkas(jvm: JavaGateway) -> None:
    oracle = Oracle(jvm)
    rng = random.Random(5)
    racks = {0: "a", 1: "bé", 2: "c"}
    topics: dict[Uuid, tuple[str, list[list[int]]]] = {}
    for number, count in enumerate((1, 3, 12, 50, 300)):
        partitions = [rng.sample((0, 1, 2, 3), rng.randint(1, 3)) for _ in range(count)]
        topics[random_uuid(rng)] = (f"topic-{number}" * (number + 1), partitions)
    brokers = {
        number: BrokerImage(number, 1, Uuid.ZERO, {}, {}, rack, False, False, ()) for number, rack in racks.items()
    }
    images = [
        TopicImage(
            name, topic_id, {p: PartitionImage(tuple(replicas), tuple(replicas)) for p, replicas in enumerate(held)}
        )
        for topic_id, (name, held) in topics.items()
    ]
    ours = MetadataImage(topics_by_name={topic.name: topic for topic in images}, brokers=brokers)
    theirs = oracle.image(topics, racks)
    utils = oracle.group.Utils
    for topic in images:
        assert topic_hash(topic, ours) == utils.computeTopicHash(topic.name, theirs)
    hashes = MetadataHashes()
    for count in range(len(images) + 1):
        names = [topic.name for topic in images[:count]]
        expected = utils.computeGroupHash({name: utils.computeTopicHash(name, theirs) for name in names})
        assert hashes.group_hash([*names, "missing"], ours) == expected
