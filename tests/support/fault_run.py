"""A cluster of real processes under load while its nodes are killed, hung and restarted.

    python -m support.fault_run [seconds] [seed]      prints the counts and keeps the history as a file

Everything the clients were told is in the history; in the end the logs of all replicas are added to it, read from the
stopped nodes' files, and `history_check` says whether the promises were kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.fault_clients import Client, Committer, Producer, Reader
from support.history import History
from support.namespaces import Namespaces, may_isolate
from support.processes import wait_until
from support.quorum_cluster import NodeProcess, QuorumCluster, combined
from support.wire import ask

from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.records import iter_batches, iter_records
from protocol.schema import Message
from storage.checkpoints import OffsetCheckpointFile

TOPIC = "faults"
PARTITIONS = 6
SETTINGS = {
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "200",
    "replica.fetch.backoff.ms": "100",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    "log.segment.bytes": "1048576",
}
HEAL_S = 60.0


class FaultRun:
    def __init__(self, directory: Path, seed: int, network: Namespaces | None) -> None:
        self.rng = random.Random(seed)
        self.history = History(directory / "history.jsonl")
        self.network = network
        self.cluster = QuorumCluster(directory, combined(3), extra=SETTINGS, network=network)
        self.down: set[int] = set()
        self.paused: set[int] = set()
        self.clients: list[Client] = []

    # the load

    def start(self) -> None:
        self.cluster.start()
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=PARTITIONS,
            replication_factor=3,
            configs=[CreatableTopicConfig(name="min.insync.replicas", value="2")],
        )
        answer = self.ask(self.cluster.nodes[1], CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        assert answer.topics[0].error_code == 0, answer.topics[0].error_message
        wait_until(self.is_in_sync, 20, "all replicas in sync at the beginning")
        addresses = {node.node_id: (node.host, node.port) for node in self.cluster.nodes.values()}
        half = PARTITIONS // 2
        rest = (addresses, TOPIC, self.history)
        self.clients = [
            Producer("a", range(half), *rest),
            Producer("b", range(half, PARTITIONS), *rest),
            Producer("c", (0, PARTITIONS - 1), *rest),
            Reader("r1", range(PARTITIONS), *rest),
            Reader("r2", range(PARTITIONS), *rest),
            Committer("g1", (0, 1), *rest),
            Committer("g2", (2, 3), *rest),
        ]
        for client in self.clients:
            client.start()

    def ask(self, node: NodeProcess, request: Message, version: int) -> Any:
        return ask(node.port, request, version, timeout_s=5, host=node.host)

    def partitions(self) -> list[tuple[int, list[int]]]:
        """(leader, ISR) of each partition as a node has it that answers; empty if none does."""
        for node in self.cluster.running():
            if node.node_id in self.paused:
                continue
            try:
                answer = self.ask(node, MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12)
            except OSError:
                continue
            if answer.topics and answer.topics[0].partitions:
                return [(p.leader_id, p.isr_nodes) for p in answer.topics[0].partitions]
        return []

    def is_in_sync(self) -> bool:
        found = self.partitions()
        return len(found) == PARTITIONS and all(leader > 0 and len(isr) == 3 for leader, isr in found)

    # faults

    def node_for(self, role: str) -> NodeProcess:
        """The one that matters most: a leader, a follower, the active controller, anyone."""
        healthy = [n for n in self.cluster.nodes.values() if n.node_id not in self.down | self.paused]
        if role == "controller":
            leader = self.cluster.leader([n.node_id for n in healthy])
            return self.cluster.nodes.get(leader) or self.rng.choice(healthy)
        leaders = {leader for leader, _ in self.partitions()}
        wanted = [n for n in healthy if (n.node_id in leaders) == (role == "leader")]
        return self.rng.choice(wanted or healthy)

    def kill(self) -> None:
        role = self.rng.choice(("leader", "follower", "controller"))
        node = self.node_for(role)
        self.note(f"kill -9 of a {role}", node)
        node.kill()
        time.sleep(self.rng.choice((0.0, 0.5, 3.0)))
        self.restart(node)

    def kill_two(self) -> None:
        """Below min.insync.replicas: nothing may be acknowledged until one of them is back."""
        nodes = self.rng.sample(sorted(self.cluster.nodes.values(), key=lambda n: n.node_id), 2)
        self.note("kill -9 of two", *nodes)
        for node in nodes:
            node.kill()
        time.sleep(self.rng.choice((0.5, 2.5)))
        for node in nodes:
            self.restart(node)

    def kill_all(self) -> None:
        nodes = list(self.cluster.nodes.values())
        self.note("kill -9 of all", *nodes)
        for node in nodes:
            node.kill()
        for node in self.rng.sample(nodes, len(nodes)):
            self.restart(node)

    def hang(self) -> None:
        role = self.rng.choice(("leader", "follower", "controller"))
        node = self.node_for(role)
        self.note(f"SIGSTOP of a {role}", node)
        self.paused.add(node.node_id)
        os.kill(node.pid, signal.SIGSTOP)
        time.sleep(self.rng.choice((0.5, 3.0, 5.0)))
        os.kill(node.pid, signal.SIGCONT)
        self.paused.discard(node.node_id)

    def isolate(self) -> None:
        """Both ways from everyone, or one way from the other nodes, while clients still reach it."""
        assert self.network is not None
        role = self.rng.choice(("leader", "follower", "controller"))
        node = self.node_for(role)
        others = [other for other in self.cluster.nodes if other != node.node_id]
        kind = self.rng.choice(("unplugged", "sends nothing", "hears nothing", "alone with its clients"))
        self.note(f"isolated: {kind}", node)
        self.paused.add(node.node_id)
        if kind == "unplugged":
            self.network.unplug(node.node_id)
        for other in others:
            if kind in ("sends nothing", "alone with its clients"):
                self.network.drop(node.node_id, other)
            if kind in ("hears nothing", "alone with its clients"):
                self.network.drop(other, node.node_id)
        time.sleep(self.rng.choice((1.0, 4.0, 6.0)))
        self.network.heal()
        self.paused.discard(node.node_id)

    def stutter(self) -> None:
        """A node that gets a fifth of the time: slow, but never silent for long."""
        node = self.node_for(self.rng.choice(("leader", "follower")))
        self.note("slowed", node)
        for _ in range(20):
            os.kill(node.pid, signal.SIGSTOP)
            time.sleep(0.16)
            os.kill(node.pid, signal.SIGCONT)
            time.sleep(0.04)

    def fill_disk(self) -> None:
        """No file of the node may grow any more, those of the metadata included: it may well give up and end."""
        node = self.node_for(self.rng.choice(("leader", "follower")))
        self.note("full disk", node)
        _, hard = resource.prlimit(node.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (4096, hard))
        time.sleep(self.rng.choice((1.0, 3.0)))
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (hard, hard))

    def stop_properly(self) -> None:
        node = self.node_for(self.rng.choice(("leader", "controller")))
        self.note("SIGTERM", node)
        assert node.process is not None
        node.process.send_signal(signal.SIGTERM)
        try:
            node.process.wait(20)
        except subprocess.TimeoutExpired:
            self.note("SIGKILL after SIGTERM", node)
        node.kill()
        self.restart(node)

    def storm(self) -> None:
        """Restarts in quick succession, each before the last has been noticed by everyone."""
        self.note("restart storm", *self.cluster.nodes.values())
        for _ in range(4):
            node = self.rng.choice(list(self.cluster.nodes.values()))
            if node.process is not None:
                node.kill()
            self.restart(node)
            time.sleep(self.rng.choice((0.1, 0.6)))

    def restart(self, node: NodeProcess) -> None:
        if node.process is None:
            node.launch()

    def note(self, kind: str, *nodes: NodeProcess) -> None:
        self.history.add("fault", kind=kind, nodes=[node.node_id for node in nodes])

    def run_faults(self, seconds: float) -> None:
        kinds: list[Callable[[], None]] = [self.kill, self.hang, self.kill, self.stop_properly, self.fill_disk]
        kinds += [self.hang, self.kill_two, self.stutter, self.storm, self.kill_all]
        if self.network is not None:
            kinds[1:1] = [self.isolate, self.isolate]
        end = time.monotonic() + seconds
        upcoming = list(kinds)
        while time.monotonic() < end:
            upcoming.pop(0)()
            if not upcoming:
                upcoming = self.rng.sample(kinds, len(kinds))
            settle_by = time.monotonic() + 12
            while time.monotonic() < settle_by and not self.is_in_sync():
                self.revive()
                time.sleep(0.1)
            time.sleep(self.rng.uniform(0.2, 1.0))

    def revive(self) -> None:
        """A node that ended by itself is started again, but not unnoticed."""
        for node in self.cluster.nodes.values():
            if node.process is not None and node.process.poll() is not None:
                self.note(f"ended with {node.process.returncode}", node)
                node.process = None
                node.launch()

    # the end

    def finish(self) -> None:
        """Lets everything heal, stops the clients, then the nodes, and adds the replicas to the history."""
        deadline = time.monotonic() + HEAL_S
        while not self.is_in_sync():
            self.revive()
            assert time.monotonic() < deadline, f"not in sync {HEAL_S} s after the last fault: {self.partitions()}"
            time.sleep(0.2)
        for client in self.clients:
            if isinstance(client, Producer):
                client.stop()
        time.sleep(1.5)  # the last high watermark reaches the followers with an empty fetch
        for client in self.clients:
            if not isinstance(client, Producer):
                client.stop()
        # Nobody hands over in the middle of the stop: the last one has nobody to hand over to.
        for node in self.cluster.running():
            assert node.process is not None
            node.process.send_signal(signal.SIGTERM)
        for node in self.cluster.running():
            assert node.process is not None
            node.process.wait(30)
            node.process = None
        for node in self.cluster.nodes.values():
            for partition in range(PARTITIONS):
                add_replica(self.history, node, TOPIC, partition)
        self.history.close()

    def close(self) -> None:
        for client in self.clients:
            client.stopping.set()
        for node in self.cluster.running():
            if node.node_id in self.paused:
                os.kill(node.pid, signal.SIGCONT)
        self.cluster.close()


def add_replica(history: History, node: NodeProcess, topic: str, partition: int) -> None:
    """What a stopped node has of a partition: the records, and the digest of the bytes up to the high watermark."""
    directory = node.data_dir / f"{topic}-{partition}"
    checkpoint = OffsetCheckpointFile(str(node.data_dir / "replication-offset-checkpoint"))
    high_watermark = checkpoint.read()[topic, partition]
    digest = hashlib.sha256()
    values: list[str] = []
    start, end = -1, 0
    for path in sorted(directory.glob("*.log")):
        data = memoryview(path.read_bytes())
        for position, header in iter_batches(data):
            batch = data[position : position + header.size]
            start = header.base_offset if start < 0 else start
            end = header.next_offset
            if header.next_offset <= high_watermark:
                digest.update(batch)
                values += [bytes(record.value or b"").decode() for record in iter_records(batch)]
    history.add(
        "replica",
        node=node.node_id,
        partition=partition,
        start=max(start, 0),
        end=end,
        high_watermark=high_watermark,
        digest=digest.hexdigest(),
        values=values,
    )


def run(directory: Path, seconds: float, seed: int) -> Path:
    """The path of the history."""
    with Namespaces((1, 2, 3)) if may_isolate() else contextlib.nullcontext() as network:
        faults = FaultRun(directory, seed, network)
        try:
            faults.start()
            faults.run_faults(seconds)
            faults.finish()
        finally:
            faults.close()
    return faults.history.path


if __name__ == "__main__":
    from support.history_check import check

    length = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0
    chosen = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
    home = Path(tempfile.mkdtemp(prefix="barnabas-faults-"))
    print(f"seed {chosen}, {length:.0f} s of faults, history in {home}", flush=True)
    verdict = check(run(home, length, chosen))
    print(verdict.report())
    sys.exit(0 if verdict.is_good else 1)
