"""Every node is restarted in turn while the Java producer and a group of Java consumers go on."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

import pytest
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from py4j.java_gateway import JavaGateway
from support.java_clients import JavaConsumer, JavaProducer
from support.processes import wait_until
from support.quorum_cluster import QuorumCluster, combined
from support.report import Report
from support.wire import Wire

from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

TOPIC = "rolling"
PARTITIONS = 3
PAUSE_GOAL_S = 1.0
"""Of one partition, between two acknowledgements. Reported, not asserted: a time never decides a test."""


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorumCluster]:
    settings = {
        "offsets.topic.replication.factor": "3",
        "min.insync.replicas": "2",
        "broker.heartbeat.interval.ms": "200",
    }
    made = QuorumCluster(tmp_path_factory.mktemp("rolling"), combined(3), extra=settings)
    try:
        made.start()
        yield made
    finally:
        made.close()


class Sender(threading.Thread):
    """A record every few milliseconds to each partition in turn; remembers when each was acknowledged."""

    def __init__(self, producer: JavaProducer) -> None:
        super().__init__(daemon=True)
        self.producer = producer
        self.stopping = threading.Event()
        self.sent: dict[int, list[str]] = defaultdict(list)
        self.acknowledged: dict[int, list[float]] = defaultdict(list)
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            number = 0
            while not self.stopping.is_set():
                waiting = []
                for partition in range(PARTITIONS):
                    value = f"{partition}-{number}"
                    waiting.append((partition, self.producer.send(TOPIC, partition, value)))
                    self.sent[partition].append(value)
                for partition, future in waiting:
                    future.get()  # an error would be raised here: none may reach the application
                    self.acknowledged[partition].append(time.monotonic())
                number += 1
                self.stopping.wait(0.005)
        except BaseException as error:
            self.failure = error


def in_sync(cluster: QuorumCluster) -> bool:
    node = cluster.running()[0]
    with Wire(node.port) as wire:
        answer = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12)
    return all(len(p.isr_nodes) == 3 and p.leader_id > 0 for p in answer.topics[0].partitions)


IMPATIENT: dict[str, str] = {}
"""Clients that ask again after some milliseconds: a pause is the brokers' then, not a back-off of theirs."""
AS_THEY_COME = {
    "request_timeout_ms": "30000",
    "retry_backoff_ms": "100",
    "retry_backoff_max_ms": "1000",
    "reconnect_backoff_ms": "50",
    "reconnect_backoff_max_ms": "1000",
}
"""Kafka's defaults."""
CLIENTS = {
    "classic": (IMPATIENT, IMPATIENT),
    "consumer": (
        {**AS_THEY_COME, "metadata_recovery_strategy": "rebootstrap"},
        {**AS_THEY_COME, "group_protocol": "consumer", "metadata_max_age_ms": "300000"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", CLIENTS)
def test_no_error_reaches_the_application(
    cluster: QuorumCluster, jvm: JavaGateway, report: Report, protocol: str
) -> None:
    producing, consuming = CLIENTS[protocol]
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])
    admin.close()
    wait_until(lambda: in_sync(cluster), 20, "all replicas in sync")
    bootstrap = cluster.bootstrap
    producer = JavaProducer(jvm, bootstrap, **producing)
    consumers = [JavaConsumer(jvm, bootstrap, "rolling-group", **consuming).subscribe(TOPIC) for _ in range(2)]
    sender = Sender(producer)
    sender.start()
    wait_until(lambda: len(sender.acknowledged[0]) > 20, 30, "records flow")
    for node_id in (1, 2, 3):
        assert cluster.nodes[node_id].terminate() == 0
        cluster.nodes[node_id].start()
        wait_until(lambda: in_sync(cluster), 30, f"node {node_id} is in sync again")
    done = len(sender.acknowledged[0])
    wait_until(lambda: len(sender.acknowledged[0]) > done + 20, 30, "records flow afterwards")
    sender.stopping.set()
    sender.join(30)
    assert not sender.is_alive()
    producer.close()
    assert sender.failure is None, sender.failure
    total = sum(map(len, sender.sent.values()))

    def everything() -> bool:
        return len({(part, offset) for one in consumers for _, part, offset, _ in one.seen}) >= total

    wait_until(everything, 30, "the group has read everything")
    for consumer in consumers:
        consumer.close()
    for partition, values in sender.sent.items():
        found = {(offset, value) for one in consumers for _, part, offset, value in one.seen if part == partition}
        assert [value for _, value in sorted(found)] == values
    pauses = [max(later - earlier for earlier, later in pairwise(times)) for times in sender.acknowledged.values()]
    goal = "within" if max(pauses) < PAUSE_GOAL_S else "MISSES"
    found_in = f"{protocol}: {total} records, longest pause of a partition {max(pauses):.2f} s"
    report(f"{found_in} ({goal} the goal of {PAUSE_GOAL_S:.0f} s)")
