"""The cluster of a fault test: three combined nodes, each with two log directories on a disk that can go bad, and in a
network of its own where that may be made."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from support.failing_disk import hits_of
from support.namespaces import Namespaces
from support.quorum_cluster import NodeProcess, QuorumCluster, combined
from support.wire import ask

from broker.replication.nearest import RACK_AWARE
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.schema import Message

REPLICAS = 3
SETTINGS = {
    "default.replication.factor": str(REPLICAS),
    "offsets.topic.replication.factor": str(REPLICAS),
    "offsets.topic.num.partitions": "3",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "200",
    "replica.fetch.backoff.ms": "100",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    "log.segment.bytes": "1048576",
    # The disk is asked often: one that fails is to be noticed while the test looks.
    "log.flush.interval.messages": "500",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.cleaner.enable": "false",  # it would work on each replica by itself, and they would differ
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.assignment.interval.ms": "100",
    "replica.selector.class": RACK_AWARE,
}
DISK_FAULT = "disk-fault"
LEADER, FOLLOWER, CONTROLLER = "leader", "follower", "controller"


def rack_of(node_id: int) -> str:
    return f"rack-{node_id}"


class FaultNodes(QuorumCluster):
    def __init__(self, directory: Path, topics: dict[str, int], network: Namespaces | None) -> None:
        super().__init__(
            directory,
            combined(REPLICAS),
            extra=SETTINGS,
            network=network,
            log_directories=2,
            program=("support.failing_disk", DISK_FAULT),
        )
        for node in self.nodes.values():
            with open(node.properties_path, "a") as properties:
                properties.write(f"broker.rack={rack_of(node.node_id)}\n")
        self.network = network
        self.topics = topics
        self.unreachable: set[int] = set()
        """Nodes that are hung or cut off: nobody to ask."""

    def ask(self, node: NodeProcess, request: Message, version: int) -> Any:
        return ask(node.port, request, version, timeout_s=5, host=node.host)

    # what it is like

    def alive(self) -> list[NodeProcess]:
        return [node for node in self.running() if node.process is not None and node.process.poll() is None]

    def healthy(self) -> list[NodeProcess]:
        return [node for node in self.alive() if node.node_id not in self.unreachable]

    def partitions(self) -> dict[tuple[str, int], tuple[int, list[int]]]:
        """(leader, ISR) of each partition as a node has it that answers; empty if none does."""
        return next((found for node in self.healthy() if (found := self.partitions_known_to(node))), {})

    def partitions_known_to(self, node: NodeProcess) -> dict[tuple[str, int], tuple[int, list[int]]]:
        wanted = [MetadataRequestTopic(name=name) for name in self.topics]
        try:
            answer = self.ask(node, MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 12)
        except OSError:
            return {}
        return {
            (topic.name, one.partition_index): (one.leader_id, one.isr_nodes)
            for topic in answer.topics
            for one in topic.partitions
        }

    def is_in_sync(self) -> bool:
        """Every node says so itself: one that was started again does not answer before it knows that it was away,
        while the others may not have noticed yet."""
        return len(self.alive()) == REPLICAS and all(
            len(found) == sum(self.topics.values())
            and all(leader > 0 and len(isr) == REPLICAS for leader, isr in found.values())
            for found in map(self.partitions_known_to, self.alive())
        )

    def high_watermarks(self, node: NodeProcess) -> dict[tuple[str, int], int]:
        """As the node tells a consumer, whether it leads or follows."""
        topics = [
            FetchTopic(
                topic=name,
                partitions=[FetchPartition(partition=at, fetch_offset=0, partition_max_bytes=1) for at in range(count)],
            )
            for name, count in self.topics.items()
        ]
        answer = self.ask(node, FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1, topics=topics), 11)
        return {
            (topic.topic, part.partition_index): part.high_watermark
            for topic in answer.responses
            for part in topic.partitions
        }

    def agree(self) -> bool:
        """Whether every node knows of the same commits: a follower hears of them with its next fetch."""
        known = [self.high_watermarks(node) for node in self.alive()]
        return len(known) == REPLICAS and all(one == known[0] for one in known) and -1 not in known[0].values()

    def of_role(self, role: str) -> list[NodeProcess]:
        """Healthy nodes that lead partitions, that lead none, or that are the active controller."""
        healthy = self.healthy()
        if role == CONTROLLER:
            active = self.leader([node.node_id for node in healthy])
            return [node for node in healthy if node.node_id == active]
        leaders = {leader for leader, _ in self.partitions().values()}
        return [node for node in healthy if leaders and (node.node_id in leaders) == (role == LEADER)]

    # its disks

    def set_disk_fault(self, node: NodeProcess, kind: str, directories: Iterable[Path]) -> None:
        mark = node.directory / DISK_FAULT
        whole = node.directory / f"{DISK_FAULT}.new"
        whole.write_text("".join(f"{kind} {path}\n" for path in directories))
        whole.rename(mark)

    def mend_disk(self, node: NodeProcess) -> None:
        (node.directory / DISK_FAULT).unlink(missing_ok=True)

    def disk_hits(self, node: NodeProcess) -> int:
        """How often its disks have refused, or been slow, since the beginning."""
        hits = hits_of(node.directory / DISK_FAULT)
        return len(hits.read_bytes().splitlines()) if hits.exists() else 0
