"""A topic that clients write and read all the time while a test does something to its brokers; in the end the history
of what they were told is checked against the replicas on disk.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from support.fault_clients import Client, Producer, Reader
from support.fault_groups import Committer
from support.history import History
from support.history_check import check
from support.history_life import ON_SIGTERM
from support.processes import wait_until
from support.quorum_cluster import KAFKA, NodeProcess, QuorumCluster
from support.replica_files import add_replica, add_stored_offsets

from storage.checkpoints import REPLICATION_OFFSET, OffsetCheckpointFile

MOVES_ON_S = 60
OFFSETS = "__consumer_offsets"
GROUP = "g"
SIGTERM_OF_JAVA = 128 + 15
"""The exit code of a JVM that was told to stop, and did."""


class WatchedTopic:
    """Two producers, a reader and, if `with_group`, a group that commits. The topic exists already; in the end its
    replicas, and those of the group's offsets, are on the brokers `replicas`."""

    def __init__(
        self, cluster: QuorumCluster, topic: str, path: Path, replicas: Iterable[int], *, with_group: bool = False
    ) -> None:
        self.cluster = cluster
        self.topic = topic
        self.partitions = sorted(cluster.partitions(topic))
        self.replicas = sorted(replicas)
        self.with_group = with_group
        self.history = History(path)
        self._declare()
        self.addresses = {node.node_id: (node.host, node.port) for node in cluster.nodes.values() if node.is_broker}
        """A broker that joins later is added here; clients find the leaders that are in it."""
        rest = (self.addresses, topic, self.history)
        self.producers = [Producer("a", self.partitions, *rest), Producer("b", self.partitions[::-1], *rest)]
        self.reader = Reader("r", self.partitions, *rest)
        self.others: list[Client] = [Committer(GROUP, self.partitions, *rest)] if with_group else []

    def _declare(self) -> None:
        counts = {self.topic: len(self.partitions)} | ({OFFSETS: 1} if self.with_group else {})
        topics = [
            {"name": name, "partitions": count, "replicas": self.replicas}
            | {"has_values": name == self.topic, "has_offsets": name == OFFSETS}
            for name, count in counts.items()
        ]
        groups = [{"name": GROUP, "has_members": False}] if self.with_group else []
        self.history.add("cluster", nodes=self.replicas, topics=topics, groups=groups)

    def start(self) -> None:
        self.history.add("begin")
        for client in (*self.producers, self.reader, *self.others):
            client.start()
        self.moves_on()

    def close(self) -> None:
        for client in (*self.producers, self.reader, *self.others):
            client.stopping.set()

    def fault(self, kind: str, node: int, act: Callable[[], object], *, besides: Iterable[int] = ()) -> None:
        """`besides` are nodes that are still broken, by an earlier fault."""
        self.history.add("fault", kind=kind, nodes=[node, *besides])
        act()

    def moves_on(self, records: int = 50) -> None:
        """Every producer is acknowledged so many more."""
        before = [producer.acknowledged for producer in self.producers]

        def acknowledged() -> bool:
            for client in (*self.producers, self.reader, *self.others):
                assert client.failure is None, f"{client.name} failed: {client.failure!r}"
            return all(p.acknowledged >= at + records for p, at in zip(self.producers, before, strict=True))

        wait_until(acknowledged, MOVES_ON_S, f"{records} more records acknowledged to each producer")

    def finish(self) -> str:
        """Stops the clients and the brokers, and compares; the report, or AssertionError if anything is wrong."""
        nodes = [self.cluster.nodes[node_id] for node_id in self.replicas]
        self.moves_on()
        self.history.add("end")
        for producer in self.producers:
            producer.stop()
        total = sum(producer.acknowledged for producer in self.producers)
        wait_until(lambda: sum(self.reader.positions.values()) >= total, 30, "everything is read")
        for client in (self.reader, *self.others):
            client.stop()
        self._await_checkpoints(nodes, self.topic, total)
        if self.with_group:
            self._await_checkpoints(nodes, OFFSETS, self.cluster.high_watermark(OFFSETS, 0))
        for node in nodes:
            usual = SIGTERM_OF_JAVA if node.spec.software == KAFKA else 0
            self.history.add("ended", node=node.node_id, code=node.terminate(60), cause=ON_SIGTERM, usual=usual)
            for partition in self.partitions:
                add_replica(self.history, node, self.topic, partition, with_values=True)
            if self.with_group:
                add_replica(self.history, node, OFFSETS, 0, with_values=False)
                add_stored_offsets(self.history, node, OFFSETS, 1, self.topic)
        self.history.close()
        verdict = check(self.history.path)
        assert verdict.is_good, verdict.report()
        return verdict.report()

    def _await_checkpoints(self, nodes: Iterable[NodeProcess], topic: str, total: int) -> None:
        """Until everyone has written down that all of the topic is committed: every five seconds, Apache Kafka too."""

        def on_disk(node: NodeProcess) -> int:
            known = OffsetCheckpointFile(str(node.data_dir / REPLICATION_OFFSET)).read()
            return sum(offset for (name, _), offset in known.items() if name == topic)

        for node in nodes:
            wait_until(lambda at=node: on_disk(at) >= total, 30, f"{node.name} has the last high watermark of {topic}")  # type: ignore[misc]


@contextlib.contextmanager
def watched(
    cluster: QuorumCluster, topic: str, path: Path, replicas: Iterable[int], *, with_group: bool = False
) -> Iterator[WatchedTopic]:
    made = WatchedTopic(cluster, topic, path, replicas, with_group=with_group)
    try:
        made.start()
        yield made
    finally:
        made.close()
