"""Three combined nodes of each kind, for the cases that one node cannot show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from support.processes import wait_until
from support.quorum_cluster import KAFKA, OURS, NodeProcess, NodeSpec, QuorumCluster
from support.tools import java_command
from support.wire import Wire

from bench.lab import SETTLE_S, Lab, Side
from bench.machine import cpu_seconds, resident_mb
from bench.model import SideName
from bench.servers import DEFAULTS, KAFKA_JVM
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.uuids import Uuid

NODES = (1, 2, 3)
LIMIT_S = 120

CLUSTERS: dict[SideName, QuorumCluster] = {}
"""The cluster of each side, from `start` to `finish`: it serves all rounds of a case."""


def start(lab: Lab, side: Side, settings: Mapping[str, str] | None = None) -> QuorumCluster:
    software = OURS if side.name == "barnabas" else KAFKA
    specs = {node_id: NodeSpec("broker,controller", software) for node_id in NODES}
    directory = lab.directory / lab.fresh_name(f"cluster-{side.name}")
    cluster = CLUSTERS[side.name] = QuorumCluster(directory, specs, extra={**DEFAULTS, **(settings or {})})
    for node in cluster.nodes.values():
        lab.own(node)
        if software == KAFKA:
            node.command = [*java_command(KAFKA_JVM), "kafka.Kafka", str(node.properties_path)]
    cluster.start()
    wait_until(lambda: all_know_all(cluster), LIMIT_S, "all brokers")
    return cluster


def finish(lab: Lab, side: Side) -> None:
    cluster = CLUSTERS.pop(side.name, None)
    if cluster is not None:
        cluster.close()


def all_know_all(cluster: QuorumCluster) -> bool:
    return all(cluster.brokers_known_to(node_id) == list(NODES) for node_id in NODES)


class ClusterSide(Side):
    """A side with several brokers: what they cost together. A topic's partitions have leaders everywhere."""

    def __init__(self, name: SideName, cluster: QuorumCluster) -> None:
        super().__init__(name, cluster.nodes[NODES[0]])
        self.cluster = cluster

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    @property
    def nodes(self) -> list[NodeProcess]:
        return self.cluster.running()

    def cpu(self) -> float:
        return sum(cpu_seconds(node.pid) for node in self.nodes)

    def resident_mb(self) -> float:
        return sum(resident_mb(node.pid) for node in self.nodes)

    def partitions(self, topic: str, port: int | None = None) -> list[Any]:
        """As a node that runs has them in its metadata: the one at `port`, or any."""
        question = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        with Wire(port or self.nodes[0].port) as wire:
            found: list[Any] = wire.ask(question, 12).topics[0].partitions
        return found

    def leader_of(self, port: int, topic: str, partition: int) -> int:
        """-1 if it has none, as far as the node at `port` knows."""
        found: int = next(p.leader_id for p in self.partitions(topic, port) if p.partition_index == partition)
        return found

    def await_topic(self, wire: Wire, name: str, partitions: int, timeout_s: float = SETTLE_S) -> Uuid:
        """Every node knows the leaders: a client may ask any of them."""
        topic_id = super().await_topic(wire, name, partitions, timeout_s)
        for node in self.nodes:
            with Wire(node.port) as other:
                super().await_topic(other, name, partitions, timeout_s)
        return topic_id

    def end_offsets(self, topic: str, partitions: int) -> int:
        """Each leader is asked for what it leads."""
        leaders: dict[int, list[int]] = {}
        for part in self.partitions(topic):
            leaders.setdefault(part.leader_id, []).append(part.partition_index)
        return sum(
            self.offsets_of(self.cluster.nodes[leader].port, topic, indexes) for leader, indexes in leaders.items()
        )

    def is_in_sync(self, topic: str, replicas: int = len(NODES)) -> bool:
        return all(part.leader_id > 0 and len(part.isr_nodes) == replicas for part in self.partitions(topic))
