"""What can be broken in a fault test, and how it is mended. Every fault is noted in the history, with its kind.

What is killed is started again; what ended by itself, too, but that is noted for what it is: a node has a reason to end
only when the disk with its metadata is broken, and whether it had one is for the checker to say.
"""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from support.fault_nodes import CONTROLLER, FOLLOWER, LEADER, FaultNodes
from support.history import History
from support.history_life import BY_ITSELF, KILLED, ON_SIGTERM
from support.processes import wait_until
from support.quorum_cluster import NodeProcess

ISOLATIONS = ("both ways", "sends nothing", "hears nothing", "from the other nodes")
END_S = 20.0
ROLE_S = 3.0
"""Until a role is given up that nobody has: an election of the quorum takes less."""
BITE_S = 10.0
"""Until a broken disk is mended that nobody has used: every second, nodes write checkpoints."""


class Faults:
    def __init__(self, nodes: FaultNodes, history: History, rng: random.Random) -> None:
        self.nodes = nodes
        self.history = history
        self.rng = rng
        self.settled = True
        self.counts: Counter[str] = Counter()
        self._hits: int | None = None
        self._told: set[subprocess.Popen[bytes]] = set()
        """Processes whose end is in the history."""

    def first(self) -> list[Callable[[], None]]:
        """One of each family, so that a minute has seen them all."""
        kinds: list[Callable[[], None]] = [
            partial(self.kill, LEADER),
            partial(self.fail_disk, "sync", "data"),
            partial(self.hang, LEADER),
            partial(self.kill, CONTROLLER),
            partial(self.kill, FOLLOWER),  # the last one killed is one, if nothing went wrong
            self.fill_disk,
            self.stutter,
            self.kill_set,
            self.storm,
        ]
        if self.nodes.network is not None:
            kinds[2:2] = [partial(self.isolate, "both ways")]
            kinds[5:5] = [partial(self.isolate, self.rng.choice(ISOLATIONS[1:3]))]
        return kinds

    def owed(self, *, is_long: bool) -> list[Callable[[], None]]:
        """Kinds that did not come about, because nobody had the role at the time. Who led and was killed comes back as
        a follower."""
        acts: list[tuple[str, Callable[[str], None]]] = [("kill -9", self.kill), ("SIGSTOP", self.hang)]
        missing = [
            (act, role)
            for name, act in acts[: 2 if is_long else 1]
            for role in (LEADER, CONTROLLER, FOLLOWER)
            if not self.counts[f"{name} of a {role}"]
        ]
        first = [partial(self.kill, LEADER)] if any(role == FOLLOWER for _, role in missing) else []
        return [*first, *(partial(act, role) for act, role in missing)]

    def all(self) -> list[Callable[[], None]]:
        kinds = self.first()
        kinds += [partial(self.hang, role) for role in (FOLLOWER, CONTROLLER)]
        kinds += [partial(self.fail_disk, *what) for what in (("write", "data"), ("sync", "metadata"))]
        kinds += [self.hang_set, self.kill_all, self.slow_disk, self.stop_properly]
        if self.nodes.network is not None:
            kinds += [*(partial(self.isolate, kind) for kind in ISOLATIONS), self.slow_network]
        return kinds

    # processes

    def kill(self, role: str) -> None:
        node, role = self.pick(role)
        self.note(f"kill -9 of a {role}", node)
        self.kill_now(node)
        self.rest(0.0, 0.5, 3.0)
        self.restart(node)

    def kill_set(self) -> None:
        """Two at a time is below min.insync.replicas: nothing may be acknowledged until one of them is back."""
        nodes = self.some()
        self.note("kill -9 of a random set", *nodes)
        self.kill_now(*nodes)
        self.rest(0.5, 2.5)
        for node in nodes:
            self.restart(node)

    def kill_all(self) -> None:
        nodes = self.nodes.running()
        self.note("kill -9 of all", *nodes)
        self.kill_now(*nodes)
        for node in self.rng.sample(nodes, len(nodes)):
            self.restart(node)

    def storm(self) -> None:
        """Restarts in quick succession, each before the last has been noticed by everyone."""
        self.note("restart storm", *self.nodes.nodes.values())
        for _ in range(4):
            node = self.rng.choice(list(self.nodes.nodes.values()))
            self.kill_now(node)
            self.restart(node)
            self.rest(0.1, 0.6)

    def stop_properly(self) -> None:
        node, role = self.pick(self.rng.choice((LEADER, CONTROLLER)))
        self.note("SIGTERM", node, role=role)
        self.end(node)
        self.restart(node)

    def hang(self, role: str) -> None:
        node, role = self.pick(role)
        self.note(f"SIGSTOP of a {role}", node)
        self.hang_for(self.rng.choice((0.5, 3.0, 5.0)), node)

    def hang_set(self) -> None:
        nodes = self.some()
        self.note("SIGSTOP of a random set", *nodes)
        self.hang_for(self.rng.choice((0.5, 3.0)), *nodes)

    def hang_for(self, seconds: float, *nodes: NodeProcess) -> None:
        ids = {node.node_id for node in nodes}
        self.nodes.unreachable |= ids
        send(signal.SIGSTOP, *nodes)
        time.sleep(seconds)
        send(signal.SIGCONT, *nodes)
        self.nodes.unreachable -= ids

    def stutter(self) -> None:
        """A node that gets a fifth of the time: slow, but never silent for long."""
        node, role = self.pick(self.rng.choice((LEADER, FOLLOWER)))
        self.note("slowed", node, role=role)
        for _ in range(20):
            send(signal.SIGSTOP, node)
            time.sleep(0.16)
            send(signal.SIGCONT, node)
            time.sleep(0.04)

    # networks

    def isolate(self, kind: str) -> None:
        """Both ways from everyone; or from the other nodes, one way or both, while clients still reach it."""
        network = self.nodes.network
        assert network is not None
        node, role = self.pick(self.rng.choice((LEADER, FOLLOWER, CONTROLLER)))
        others = [other for other in self.nodes.nodes if other != node.node_id]
        self.note(f"isolated: {kind}", node, role=role)
        self.nodes.unreachable.add(node.node_id)
        if kind == "both ways":
            network.unplug(node.node_id)
        for other in others:
            if kind in ("sends nothing", "from the other nodes"):
                network.drop(node.node_id, other)
            if kind in ("hears nothing", "from the other nodes"):
                network.drop(other, node.node_id)
        self.rest(1.0, 4.0, 6.0)
        network.heal()
        self.nodes.unreachable.discard(node.node_id)

    def slow_network(self) -> None:
        network = self.nodes.network
        assert network is not None
        node, role = self.pick(self.rng.choice((LEADER, FOLLOWER)))
        self.note("slow network", node, role=role)
        network.slow_down(node.node_id)
        self.rest(3.0, 6.0)
        network.heal()

    # disks

    def fail_disk(self, operation: str, directory: str) -> None:
        """One directory is given up and the node serves on; without its metadata it ends. Either way it is back only
        after a restart, which finds what is on the disk."""
        node, role = self.pick(self.rng.choice((LEADER, FOLLOWER)))
        is_metadata = directory == "metadata"
        self.note(f"failing disk: {operation}s of {directory}", node, role=role, may_end=is_metadata)
        self.break_disk(node, operation, [node.data_dirs[0 if is_metadata else 1]], 1.5, 3.0)
        self.end(node)
        self.restart(node)

    def fill_disk(self) -> None:
        """No space left for anything, or for one directory; without space for its metadata the node may well end."""
        node, role = self.pick(self.rng.choice((LEADER, FOLLOWER)))
        directories = self.rng.choice((node.data_dirs, node.data_dirs[1:]))
        self.note("full disk", node, role=role, may_end=node.data_dir in directories)
        self.break_disk(node, "full", directories, 1.0, 3.0)

    def slow_disk(self) -> None:
        node, role = self.pick(self.rng.choice((LEADER, FOLLOWER)))
        self.note("slow disk", node, role=role)
        self.break_disk(node, "slow", node.data_dirs, 3.0, 5.0)

    def break_disk(self, node: NodeProcess, kind: str, directories: Sequence[Path], *rests: float) -> None:
        """Until it has been felt, or nobody seems to use it."""
        before = self.nodes.disk_hits(node)
        self.nodes.set_disk_fault(node, kind, directories)
        self.rest(*rests)
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: self.nodes.disk_hits(node) > before, BITE_S, "the broken disk is used")
        self.nodes.mend_disk(node)
        self._hits = self.nodes.disk_hits(node) - before

    # helpers

    def pick(self, wanted: str) -> tuple[NodeProcess, str]:
        """A node of the role; at times nobody has it, then anyone. With the role that it really has."""
        found: list[NodeProcess] = []

        def has_one() -> bool:
            found[:] = self.nodes.of_role(wanted)
            return bool(found)

        with contextlib.suppress(TimeoutError):
            wait_until(has_one, ROLE_S, wanted)
        if found:
            return self.rng.choice(found), wanted
        node = self.rng.choice(self.nodes.healthy())
        roles = (role for role in (LEADER, FOLLOWER) if node in self.nodes.of_role(role))
        return node, next(roles, "node")

    def some(self) -> list[NodeProcess]:
        nodes: Sequence[NodeProcess] = self.nodes.alive()
        return self.rng.sample(nodes, min(self.rng.choice((2, 2, 3)), len(nodes)))

    def rest(self, *choices: float) -> None:
        time.sleep(self.rng.choice(choices))

    def restart(self, node: NodeProcess) -> None:
        if node.process is None:
            node.launch()

    # the ends of processes

    def kill_now(self, *nodes: NodeProcess) -> None:
        for node in nodes:
            self.notice_end(node)
            process = node.process
            if process is not None:
                node.kill()
                if process.returncode != -signal.SIGKILL:
                    self._note_end(node, process, BY_ITSELF)

    def end(self, *nodes: NodeProcess, timeout_s: float = END_S) -> None:
        """Politely, all at once; who does not listen is killed."""
        for node in nodes:
            self.notice_end(node)
        send(signal.SIGTERM, *nodes)
        for node in nodes:
            process, cause = node.process, ON_SIGTERM
            assert process is not None
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                cause = KILLED
                send(signal.SIGUSR1, node)  # its log shows what it is busy with
                time.sleep(0.5)
            node.kill()
            self._note_end(node, process, cause)

    def revive(self) -> None:
        for node in self.nodes.running():
            if self.notice_end(node):
                node.process = None
                node.launch()

    def notice_end(self, node: NodeProcess) -> bool:
        """Whether it has ended without our doing; then that is noted."""
        process = node.process
        if process is None or process.poll() is None:
            return False
        self._note_end(node, process, BY_ITSELF)
        return True

    def _note_end(self, node: NodeProcess, process: subprocess.Popen[bytes], cause: str) -> None:
        if process not in self._told:
            self._told.add(process)
            self.history.add("ended", node=node.node_id, code=process.returncode, cause=cause)

    # the history

    def note(self, kind: str, *nodes: NodeProcess, **more: Any) -> None:
        for node in self.nodes.running():
            self.notice_end(node)  # before: it was not this fault
        self.counts[kind] += 1
        ids = [node.node_id for node in nodes]
        self.history.add("fault", kind=kind, nodes=ids, unsettled=not self.settled, **more)

    def healed(self) -> None:
        felt = {} if self._hits is None else {"hits": self._hits}
        self.history.add("healed", **felt)
        self._hits = None

    def heal_all(self) -> None:
        """After a test that ended in the middle of a fault."""
        send(signal.SIGCONT, *(node for node in self.nodes.running() if node.node_id in self.nodes.unreachable))


def send(number: signal.Signals, *nodes: NodeProcess) -> None:
    """To those that still run."""
    for node in nodes:
        if node.process is not None:
            node.process.send_signal(number)
