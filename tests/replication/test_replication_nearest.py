"""Consumers read from the replica in their own rack (KIP-392)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from support.logs import NOW, batch, log_config
from support.processes import wait_until
from support.quorum_cluster import QuorumCluster, separate
from support.wire import Wire

from broker.fetch_sessions import FetchSessionCache
from broker.handlers.data.fetch import fetch as handle_fetch
from broker.partition import Partition
from broker.replication.cluster import ClusterView
from broker.replication.leader import IsrChange, LeaderState
from broker.replication.nearest import RACK_AWARE, nearest_replica
from controller.image import PartitionImage
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.records import iter_batches, iter_records
from protocol.uuids import Uuid
from storage.log import Log

RACKS = {1: "a", 2: "b", 3: "b"}
TOPIC = "near"


class NoController:
    def submit(self, partition: Partition, change: IsrChange) -> None:
        """The in-sync set stays as it is."""


def leadership(*offsets: tuple[int, int, int]) -> LeaderState:
    """(replica, log start, log end) of the followers, as they fetched one after the other."""
    state = LeaderState(1, 1_000)
    state.on_metadata(0, replicas=(1, 2, 3), isr=(1, 2, 3), leader_epoch=1, partition_epoch=1, log_end_offset=0)
    for now, (replica, start, end) in enumerate(offsets):
        state.on_fetch(now, replica, broker_epoch=-1, fetch_offset=end, log_start_offset=start, log_end_offset=10)
    return state


def test_the_leader_if_it_is_as_near() -> None:
    state = leadership((2, 0, 10), (3, 0, 10))
    assert nearest_replica(state, 1, RACKS, "a", 5) == 1
    assert nearest_replica(state, 1, RACKS, "nowhere", 5) == 1


def test_the_furthest_and_then_the_latest_in_the_rack() -> None:
    assert nearest_replica(leadership((2, 0, 10), (3, 0, 8)), 1, RACKS, "b", 5) == 2
    assert nearest_replica(leadership((2, 0, 10), (3, 0, 10)), 1, RACKS, "b", 5) == 3


def test_only_those_that_have_it_and_live() -> None:
    state = leadership((2, 0, 10), (3, 6, 10))
    assert nearest_replica(state, 1, RACKS, "b", 5) == 2
    assert nearest_replica(leadership((2, 0, 4), (3, 6, 10)), 1, RACKS, "b", 5) == 1
    assert nearest_replica(state, 1, {1: "a", 3: "b"}, "b", 7) == 3
    state.on_metadata(0, replicas=(1, 2, 3), isr=(1, 3), leader_epoch=1, partition_epoch=2, log_end_offset=0)
    assert nearest_replica(state, 1, RACKS, "b", 7) == 3


def test_a_follower_that_is_behind_does_not_say_where_logs_part(tmp_path: Path) -> None:
    """A consumer had read up to 3, all of it committed, and asked a follower that had only one record of that epoch.
    The follower answered that the epoch ended there, as if the rest had been truncated, and the consumer would read it
    again, or give up. Only the leader can tell. The simulation of replication found it.
    """
    log = Log.open(str(tmp_path / "t-0"), "t", 0, log_config())
    partition = Partition("t", 0, Uuid(b"n" * 16), 2, log, ClusterView(1_000, NoController(), lambda: 12))
    image = PartitionImage(replicas=(1, 2), isr=(2,), leader=2, leader_epoch=4, partition_epoch=1)
    partition.on_image(image)
    partition.append(batch(b"v"), NOW, acks=1)
    replicas = SimpleNamespace(partition_by_id=lambda topic_id, index: partition)
    config = SimpleNamespace(fetch_max_bytes=1 << 20, replica_selector_class="")
    broker = SimpleNamespace(config=config, fetch_sessions=FetchSessionCache(1), replicas=replicas)
    context: Any = SimpleNamespace(api_version=16, broker=broker)

    def read() -> PartitionData:
        asked = FetchPartition(
            partition=0, current_leader_epoch=partition.leader_epoch, fetch_offset=3, last_fetched_epoch=4
        )
        answer = handle_fetch(
            context, FetchRequest(topics=[FetchTopic(topic_id=partition.topic_id, partitions=[asked])])
        )
        return answer.responses[0].partitions[0]  # type: ignore[no-any-return, union-attr]

    assert (read().diverging_epoch.epoch, read().diverging_epoch.end_offset) == (4, 1)
    partition.on_image(image._replace(leader=1, leader_epoch=5, partition_epoch=2))
    assert (read().error_code, read().diverging_epoch.epoch) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorumCluster]:
    settings = {"replica.selector.class": RACK_AWARE, "replica.fetch.wait.max.ms": "100"}
    made = QuorumCluster(tmp_path_factory.mktemp("near"), separate(controllers=1, brokers=2), extra=settings)
    for node_id in (1, 2):
        with open(made.nodes[node_id].properties_path, "a") as properties:
            properties.write(f"broker.rack=rack-{node_id}\n")
    try:
        made.start()
        yield made
    finally:
        made.close()


def fetch(cluster: QuorumCluster, node: int, topic_id: Uuid, epoch: int, offset: int, rack: str) -> PartitionData:
    wanted = FetchPartition(partition=0, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=2_000,
        min_bytes=1,
        max_bytes=1 << 20,
        rack_id=rack,
        topics=[FetchTopic(topic_id=topic_id, partitions=[wanted])],
    )
    with Wire(cluster.nodes[node].port) as wire:
        (data,) = wire.ask(request, 16).responses[0].partitions
    return data  # type: ignore[no-any-return]


def values(data: PartitionData) -> list[bytes]:
    records = memoryview(data.records)
    return [
        bytes(record.value)
        for position, header in iter_batches(records)
        for record in iter_records(records[position : position + header.size])
    ]


def test_a_consumer_is_sent_to_the_follower_in_its_rack(cluster: QuorumCluster) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    admin.create_topics([NewTopic(TOPIC, replica_assignments={0: [1, 2]})])
    admin.close()
    with Wire(cluster.nodes[1].port) as wire:

        def described() -> object:
            (topic,) = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12).topics
            return topic

        wait_until(lambda: bool(described().partitions), 10, "the topic")  # type: ignore[attr-defined]
        topic = described()
    topic_id, epoch = topic.topic_id, topic.partitions[0].leader_epoch  # type: ignore[attr-defined]
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all")
    producer.send(TOPIC, b"one", partition=0).get(10)
    assert values(fetch(cluster, 1, topic_id, epoch, 0, "rack-1")) == [b"one"]
    sent_away = fetch(cluster, 1, topic_id, epoch, 0, "rack-2")
    assert (sent_away.preferred_read_replica, bytes(sent_away.records)) == (2, b"")
    assert values(fetch(cluster, 2, topic_id, epoch, 0, "rack-2")) == [b"one"]  # waits until it is told of the commit
    early = fetch(cluster, 2, topic_id, epoch + 1, 0, "rack-2")
    assert early.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    producer.send(TOPIC, b"two", partition=0).get(10)
    assert values(fetch(cluster, 2, topic_id, epoch, 1, "rack-2")) == [b"two"]
    producer.close()
