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
from support.processes import wait_until
from support.quorum_cluster import QuorumCluster
from support.replica_files import add_replica

from storage.checkpoints import OffsetCheckpointFile

MOVES_ON_S = 60


class WatchedTopic:
    """Two producers, a reader and, if `with_group`, a group that commits. The topic exists already."""

    def __init__(self, cluster: QuorumCluster, topic: str, path: Path, *, with_group: bool = False) -> None:
        self.cluster = cluster
        self.topic = topic
        self.partitions = sorted(cluster.partitions(topic))
        self.history = History(path)
        self.addresses = {node.node_id: (node.host, node.port) for node in cluster.nodes.values() if node.is_broker}
        """A broker that joins later is added here; clients find the leaders that are in it."""
        rest = (self.addresses, topic, self.history)
        self.producers = [Producer("a", self.partitions, *rest), Producer("b", self.partitions[::-1], *rest)]
        self.reader = Reader("r", self.partitions, *rest)
        self.others: list[Client] = [Committer("g", self.partitions, *rest)] if with_group else []

    def start(self) -> None:
        for client in (*self.producers, self.reader, *self.others):
            client.start()
        self.moves_on()

    def close(self) -> None:
        for client in (*self.producers, self.reader, *self.others):
            client.stopping.set()

    def fault(self, kind: str, node: int, act: Callable[[], object]) -> None:
        self.history.add("fault", kind=kind, nodes=[node])
        act()

    def moves_on(self, records: int = 50) -> None:
        """Every producer is acknowledged so many more."""
        before = [producer.acknowledged for producer in self.producers]

        def acknowledged() -> bool:
            for client in (*self.producers, self.reader, *self.others):
                assert client.failure is None, f"{client.name} failed: {client.failure!r}"
            return all(p.acknowledged >= at + records for p, at in zip(self.producers, before, strict=True))

        wait_until(acknowledged, MOVES_ON_S, f"{records} more records acknowledged to each producer")

    def finish(self, replicas: Iterable[int]) -> str:
        """Stops the clients and these brokers, and compares; the report, or AssertionError if anything is wrong."""
        nodes = [self.cluster.nodes[node_id] for node_id in replicas]
        for producer in self.producers:
            producer.stop()
        total = sum(producer.acknowledged for producer in self.producers)
        wait_until(lambda: sum(self.reader.positions.values()) >= total, 30, "everything is read")

        def on_disk(data_dir: Path) -> int:
            known = OffsetCheckpointFile(str(data_dir / "replication-offset-checkpoint")).read()
            return sum(known.get((self.topic, partition), 0) for partition in self.partitions)

        # Written every five seconds, by Apache Kafka too.
        for node in nodes:
            wait_until(lambda at=node.data_dir: on_disk(at) >= total, 30, f"{node.name} has the last high watermark")  # type: ignore[misc]
        for client in (self.reader, *self.others):
            client.stop()
        for node in nodes:
            node.terminate(60)
            for partition in self.partitions:
                add_replica(self.history, node, self.topic, partition, with_values=True)
        self.history.close()
        verdict = check(self.history.path)
        assert verdict.is_good, verdict.report()
        return verdict.report()


@contextlib.contextmanager
def watched(cluster: QuorumCluster, topic: str, path: Path, *, with_group: bool = False) -> Iterator[WatchedTopic]:
    made = WatchedTopic(cluster, topic, path, with_group=with_group)
    try:
        made.start()
        yield made
    finally:
        made.close()
