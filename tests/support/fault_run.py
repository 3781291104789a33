"""A cluster of real processes under load while its nodes, networks and disks are broken.

    python -m support.fault_run [seconds] [seed]      prints the counts and keeps the history as a file

Everything the clients were told is in the history; in the end the logs of all replicas are added to it, read from the
stopped nodes' files, and `history_check`, a program of its own, says whether the promises were kept. It is asked also
when the run itself came to no good end: what was seen until then counts.
"""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from py4j.java_gateway import JavaGateway
from support.fault_clients import Client, Producer, Reader
from support.fault_demands import JAVA, LONG_S
from support.fault_groups import Committer, Member
from support.fault_java import KafkaJavaProducer
from support.fault_kinds import Faults
from support.fault_members import ClassicMember, ConsumerMember
from support.fault_nodes import REPLICAS, FaultNodes
from support.fault_pipeline import PipelinedProducer
from support.fault_readers import EndWatcher, FollowerReader
from support.history import History
from support.jars import JarsUnavailable
from support.java import JavaNotFound
from support.jvm import Jvm, open_log
from support.namespaces import Namespaces, why_not_isolated
from support.processes import wait_until
from support.replica_files import add_error_traces, add_replica, add_stored_offsets

from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

TOPIC = "faults"
PARTITIONS = 6
OFFSETS = "__consumer_offsets"
TOPICS = {TOPIC: PARTITIONS, OFFSETS: 3}
GROUPS = {"committer": False, "classic": True, "consumer": True}
"""With or without members."""
HEAL_S = 60.0
SETTLE_S = 20.0
"""A cluster is whole after 5 s at most, or after 13 s when seven others want each core."""
STOP_S = 30.0
OWED_AGAIN = 4
"""So often a fault is tried again whose role nobody had."""
TESTS = Path(__file__).parents[1]


class FaultRun:
    def __init__(
        self, directory: Path, seed: int, seconds: float, network: Namespaces | None, jvm: JavaGateway | None
    ) -> None:
        self.seconds = seconds
        self.jvm = jvm
        self.rng = random.Random(seed)
        self.history = History(directory / "history.jsonl")
        self.nodes = FaultNodes(directory, TOPICS, network)
        self.faults = Faults(self.nodes, self.history, self.rng)
        self.clients: list[Client] = []
        replicas = sorted(self.nodes.nodes)
        topics = [
            {"name": name, "partitions": count, "replicas": replicas}
            | {"has_values": name == TOPIC, "has_offsets": name == OFFSETS}
            for name, count in TOPICS.items()
        ]
        groups = [{"name": name, "has_members": has_members} for name, has_members in GROUPS.items()]
        self.history.add("cluster", nodes=replicas, topics=topics, groups=groups)
        self.history.add("plan", seconds=seconds, isolates=network is not None, java=jvm is not None)

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
            *([KafkaJavaProducer(JAVA, every, self.jvm, *rest)] if self.jvm is not None else []),
            Reader("reader", every, *rest),
            FollowerReader("near", every, *rest),
            EndWatcher("watcher", every, *rest),
            Committer("committer", (0, 1), *rest),
            *(ClassicMember(f"classic{at}", "classic", PARTITIONS, *rest) for at in range(3)),
            *(ConsumerMember(f"consumer{at}", "consumer", PARTITIONS, *rest) for at in range(3)),
        ]
        self.history.add("begin")
        for client in self.clients:
            client.start()  # the first that looks for its coordinator creates the topic of the offsets
        wait_until(self.nodes.is_in_sync, 30, "all replicas in sync at the beginning")

    def of(self, kind: type[Client]) -> list[Client]:
        return [client for client in self.clients if isinstance(client, kind)]

    def run_faults(self) -> None:
        """At least one of each family, in a long run one of each kind, however slow the machine."""
        end = time.monotonic() + self.seconds
        is_long = self.seconds >= LONG_S
        for fault in self.faults.first():
            self._strike(fault)
        self._strike_owed(is_long=False)
        kinds = self.faults.all()
        upcoming: list[Callable[[], None]] = []
        struck = 0
        while time.monotonic() < end or (is_long and struck < len(kinds)):
            upcoming = upcoming or self.rng.sample(kinds, len(kinds))
            self._strike(upcoming.pop(0))
            struck += 1
        self._strike_owed(is_long=is_long)

    def _strike_owed(self, *, is_long: bool) -> None:
        for _ in range(OWED_AGAIN):
            for fault in self.faults.owed(is_long=is_long):
                self._strike(fault)

    def _strike(self, fault: Callable[[], None]) -> None:
        """And a while for the cluster to be whole again; if it takes longer, the next fault comes nevertheless."""
        fault()
        self.faults.healed()
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
        self._heal()
        # Nobody hands over in the middle of the stop: the last one has nobody to hand over to.
        self.faults.end(*self.nodes.running(), timeout_s=STOP_S)
        for node in self.nodes.nodes.values():
            for topic, count in TOPICS.items():
                for partition in range(count):
                    add_replica(self.history, node, topic, partition, with_values=topic == TOPIC)
            add_stored_offsets(self.history, node, OFFSETS, TOPICS[OFFSETS], TOPIC)

    def _heal(self) -> None:
        def is_whole() -> bool:
            self.faults.revive()
            return self.nodes.is_in_sync()

        try:
            wait_until(is_whole, HEAL_S, "all replicas in sync after the last fault")
        except TimeoutError as error:
            raise AssertionError(f"{error}: {self.nodes.partitions()}") from None
        self._moves_on()
        self.history.add("end")
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

    def _moves_on(self) -> None:
        """Every producer is acknowledged more, and so every partition takes records again."""
        before = {client.name: client.acknowledged for client in self.of(Producer) if isinstance(client, Producer)}
        stuck: dict[str, int] = {}

        def have_moved() -> bool:
            for client in self.clients:
                client.check()
            producers = (client for client in self.of(Producer) if isinstance(client, Producer))
            now = {client.name: client.acknowledged for client in producers}
            stuck.clear()
            stuck.update({name: count for name, count in now.items() if count <= before[name]})
            return not stuck

        try:
            wait_until(have_moved, HEAL_S, "every producer is acknowledged more after the last fault")
        except TimeoutError as error:
            raise AssertionError(f"{error}: not {stuck}") from None

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
        add_error_traces(self.history, self.nodes.nodes.values())
        self.history.close()


class Outcome(NamedTuple):
    is_good: bool
    text: str


def run(directory: Path, seconds: float, seed: int, jvm: JavaGateway | str) -> Outcome:
    """What the checker says of the history, whatever became of the run. `jvm` is for Kafka's own producer, or says why
    there is none."""
    path = directory / "history.jsonl"
    interruption: BaseException | None = None
    why_not = why_not_isolated()
    with contextlib.nullcontext() if why_not else Namespaces((1, 2, 3)) as network:
        faults = FaultRun(directory, seed, seconds, network, None if isinstance(jvm, str) else jvm)
        if why_not:
            faults.history.add("left_out", what="faults of networks", why=why_not)
        if isinstance(jvm, str):
            faults.history.add("left_out", what="Kafka's Java producer", why=jvm)
        try:
            faults.start()
            faults.run_faults()
            faults.finish()
        except BaseException as error:
            faults.history.add("failed", text=traceback.format_exc())
            interruption = None if isinstance(error, Exception) else error
        finally:
            faults.close()
    outcome = judge(path)
    if interruption is not None:
        print(outcome.text, flush=True)
        raise interruption
    return outcome


def judge(path: Path) -> Outcome:
    command = [sys.executable, "-m", "support.history_check", str(path)]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    return Outcome(done.returncode == 0, f"{done.stdout}{done.stderr}history: {path}")


def start_jvm(directory: Path, stack: contextlib.ExitStack) -> JavaGateway | str:
    """Until the stack is closed; or why there is none."""
    try:
        machine = Jvm(stack.enter_context(open_log(directory)))
    except (JavaNotFound, JarsUnavailable) as missing:
        return str(missing)
    stack.callback(machine.close)
    return machine.gateway


def _exit(number: int, frame: FrameType | None) -> None:
    """SIGTERM must leave neither nodes nor networks behind; a second one does not disturb the clearing up."""
    signal.signal(number, lambda *_: None)
    raise SystemExit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _exit)
    length = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0
    chosen = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
    home = Path(tempfile.mkdtemp(prefix="barnabas-faults-"))
    print(f"seed {chosen}, {length:.0f} s of faults, history in {home}", flush=True)
    with contextlib.ExitStack() as stack:
        outcome = run(home, length, chosen, start_jvm(home, stack))
    print(outcome.text)
    sys.exit(0 if outcome.is_good else 1)
