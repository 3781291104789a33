"""A cluster of real processes under load while its nodes, networks and disks are broken.

    python -m support.fault_run [seconds] [seed]      prints the counts and keeps the history as a file

Everything the clients were told is in the history; in the end the logs of all replicas are added to it, read from the
stopped nodes' files, and `history_check` says whether the promises were kept.
"""

from __future__ import annotations

import contextlib
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from py4j.java_gateway import JavaGateway
from support.fault_clients import Client, Producer, Reader
from support.fault_groups import Committer, Member
from support.fault_java import KafkaJavaProducer
from support.fault_kinds import Faults
from support.fault_members import ClassicMember, ConsumerMember
from support.fault_nodes import REPLICAS, FaultNodes
from support.fault_pipeline import PipelinedProducer
from support.fault_readers import EndWatcher, FollowerReader
from support.history import History
from support.namespaces import Namespaces, why_not_isolated
from support.processes import wait_until
from support.replica_files import add_error_traces, add_replica, add_stored_offsets

from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

TOPIC = "faults"
PARTITIONS = 6
OFFSETS = "__consumer_offsets"
TOPICS = {TOPIC: PARTITIONS, OFFSETS: 3}
HEAL_S = 60.0
SETTLE_S = 12.0


class FaultRun:
    def __init__(self, directory: Path, seed: int, network: Namespaces | None, jvm: JavaGateway | None = None) -> None:
        self.rng = random.Random(seed)
        self.history = History(directory / "history.jsonl")
        self.nodes = FaultNodes(directory, TOPICS, network)
        self.faults = Faults(self.nodes, self.history, self.rng)
        self.clients: list[Client] = []
        self.jvm = jvm

    def start(self) -> None:
        self.nodes.start()
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=PARTITIONS,
            replication_factor=REPLICAS,
            configs=[CreatableTopicConfig(name="min.insync.replicas", value="2")],
        )
        answer = self.nodes.ask(self.nodes.nodes[1], CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        assert answer.topics[0].error_code == 0, answer.topics[0].error_message
        addresses = {node.node_id: (node.host, node.port) for node in self.nodes.nodes.values()}
        rest = (addresses, TOPIC, self.history)
        every = range(PARTITIONS)
        self.clients = [
            *(Producer(f"p{partition}", (partition,), *rest) for partition in every[::2]),
            *(PipelinedProducer(f"p{partition}", (partition,), *rest) for partition in every[1::2]),
            PipelinedProducer("shared", (0, PARTITIONS - 1), *rest),
            *([KafkaJavaProducer("java", every, self.jvm, *rest)] if self.jvm is not None else []),
            Reader("reader", every, *rest),
            FollowerReader("near", every, *rest),
            EndWatcher("watcher", every, *rest),
            Committer("committer", (0, 1), *rest),
            *(ClassicMember(f"classic{at}", "classic", PARTITIONS, *rest) for at in range(3)),
            *(ConsumerMember(f"consumer{at}", "consumer", PARTITIONS, *rest) for at in range(3)),
        ]
        for client in self.clients:
            client.start()  # the first that looks for its coordinator creates the topic of the offsets
        wait_until(self.nodes.is_in_sync, 30, "all replicas in sync at the beginning")

    def of(self, kind: type[Client]) -> list[Client]:
        return [client for client in self.clients if isinstance(client, kind)]

    def run_faults(self, seconds: float) -> None:
        """At least one of each family, however slow the machine."""
        end = time.monotonic() + seconds
        upcoming: list[Callable[[], None]] = self.faults.first()
        owed = len(upcoming)
        while owed > 0 or time.monotonic() < end:
            upcoming.pop(0)()
            self.faults.healed()
            owed -= 1
            if not upcoming:
                kinds = self.faults.all()
                upcoming = self.rng.sample(kinds, len(kinds))
            settle_by = time.monotonic() + SETTLE_S
            self.faults.settled = False
            while time.monotonic() < settle_by and not self.faults.settled:
                self.faults.revive()
                self.faults.settled = self.nodes.is_in_sync()
                time.sleep(0.1)
            for client in self.clients:
                client.check()
            time.sleep(self.rng.uniform(0.2, 0.6))

    def finish(self) -> None:
        """Lets everything heal, stops the clients, then the nodes, and adds the replicas to the history."""
        try:
            self._heal()
        finally:
            add_error_traces(self.history, self.nodes.nodes.values())
        # Nobody hands over in the middle of the stop: the last one has nobody to hand over to.
        for node in self.nodes.running():
            assert node.process is not None
            node.process.send_signal(signal.SIGTERM)
        for node in self.nodes.running():
            assert node.process is not None
            node.process.wait(30)
            node.process = None
        for node in self.nodes.nodes.values():
            for topic, count in TOPICS.items():
                for partition in range(count):
                    add_replica(self.history, node, topic, partition, with_values=topic == TOPIC)
            add_stored_offsets(self.history, node, OFFSETS, TOPICS[OFFSETS], TOPIC)
        self.history.close()

    def _heal(self) -> None:
        def is_whole() -> bool:
            self.faults.revive()
            return self.nodes.is_in_sync()

        wait_until(is_whole, HEAL_S, f"all replicas in sync after the last fault: {self.nodes.partitions()}")
        for client in self.of(Producer):
            client.stop()
        for member in self.of(Member):
            assert isinstance(member, Member)
            member.stays = True
        try:
            wait_until(self._is_consumed, HEAL_S, "every group has read and committed everything")
        except TimeoutError as error:
            raise AssertionError(f"{error}: {self._progress()}") from None
        for client in self.clients:
            client.stop()
        wait_until(self.nodes.agree, HEAL_S, "all nodes know of all commits")

    def _is_consumed(self) -> bool:
        ends = self.nodes.high_watermarks(self.nodes.alive()[0])
        return all(
            committed.get(partition) == ends[TOPIC, partition]
            for committed in self._progress().values()
            for partition in range(PARTITIONS)
        )

    def _progress(self) -> dict[str, dict[int, int]]:
        """What the present owners in each group have committed."""
        progress: dict[str, dict[int, int]] = {}
        for member in self.of(Member):
            assert isinstance(member, Member)
            member.check()
            progress.setdefault(member.group, {}).update(dict(member.committed))
        for reader in self.of(Reader):
            assert isinstance(reader, Reader)
            progress[reader.name] = dict(reader.positions)
        return progress

    def close(self) -> None:
        for client in self.clients:
            client.stopping.set()
        self.faults.heal_all()
        self.nodes.close()


def run(directory: Path, seconds: float, seed: int, jvm: JavaGateway | str) -> Path:
    """The path of the history. `jvm` runs Kafka's own producer, or says why there is none."""
    gateway = None if isinstance(jvm, str) else jvm
    why_not = why_not_isolated()
    with contextlib.nullcontext() if why_not else Namespaces((1, 2, 3)) as network:
        faults = FaultRun(directory, seed, network, gateway)
        if isinstance(jvm, str):
            faults.history.add("left_out", what="Kafka's Java producer", why=jvm)
        if why_not:
            faults.history.add("left_out", what="faults of networks", why=why_not)
        try:
            faults.start()
            faults.run_faults(seconds)
            faults.finish()
        finally:
            faults.close()
    return faults.history.path


if __name__ == "__main__":
    from support.history_check import check
    from support.jars import JarsUnavailable
    from support.java import JavaNotFound
    from support.jvm import Jvm, open_log

    length = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0
    chosen = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
    home = Path(tempfile.mkdtemp(prefix="barnabas-faults-"))
    print(f"seed {chosen}, {length:.0f} s of faults, history in {home}", flush=True)
    with contextlib.ExitStack() as stack:
        jvm: JavaGateway | str
        try:
            machine = Jvm(stack.enter_context(open_log(home)))
            stack.callback(machine.close)
            jvm = machine.gateway
        except (JavaNotFound, JarsUnavailable) as missing:
            jvm = str(missing)
        verdict = check(run(home, length, chosen, jvm))
    print(verdict.report())
    sys.exit(0 if verdict.is_good else 1)
