"""What can be broken in a fault test, and how it is mended. Every fault is noted in the history, with its kind.

What is killed is started again; what ended by itself, too, but not unnoticed (`revive`).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial

from support.fault_nodes import FaultNodes
from support.history import History
from support.quorum_cluster import NodeProcess

ISOLATIONS = ("both ways", "sends nothing", "hears nothing", "from the other nodes")
END_S = 20.0


class Faults:
    def __init__(self, nodes: FaultNodes, history: History, rng: random.Random) -> None:
        self.nodes = nodes
        self.history = history
        self.rng = rng
        self.settled = True

    def first(self) -> list[Callable[[], None]]:
        """One of each family, so that a minute has seen them all."""
        kinds: list[Callable[[], None]] = [
            partial(self.kill, "leader"),
            partial(self.fail_disk, "sync", "data"),
            partial(self.hang, "leader"),
            partial(self.kill, "controller"),
            self.fill_disk,
            partial(self.kill, "follower"),
            self.stutter,
            self.kill_set,
            self.storm,
        ]
        if self.nodes.network is not None:
            kinds[2:2] = [partial(self.isolate, "both ways")]
            kinds[5:5] = [partial(self.isolate, self.rng.choice(ISOLATIONS[1:3]))]
        return kinds

    def all(self) -> list[Callable[[], None]]:
        kinds = self.first()
        kinds += [partial(self.hang, role) for role in ("follower", "controller")]
        kinds += [partial(self.fail_disk, *what) for what in (("write", "data"), ("sync", "metadata"))]
        kinds += [self.hang_set, self.kill_all, self.slow_disk, self.stop_properly]
        if self.nodes.network is not None:
            kinds += [*(partial(self.isolate, kind) for kind in ISOLATIONS), self.slow_network]
        return kinds

    # processes

    def kill(self, role: str) -> None:
        node = self.pick(role)
        self.note(f"kill -9 of a {role}", node)
        node.kill()
        self.rest(0.0, 0.5, 3.0)
        self.restart(node)

    def kill_set(self) -> None:
        """Two at a time is below min.insync.replicas: nothing may be acknowledged until one of them is back."""
        nodes = self.some()
        self.note("kill -9 of a random set", *nodes)
        for node in nodes:
            node.kill()
        self.rest(0.5, 2.5)
        for node in nodes:
            self.restart(node)

    def kill_all(self) -> None:
        nodes = self.nodes.running()
        self.note("kill -9 of all", *nodes)
        for node in nodes:
            node.kill()
        for node in self.rng.sample(nodes, len(nodes)):
            self.restart(node)

    def storm(self) -> None:
        """Restarts in quick succession, each before the last has been noticed by everyone."""
        self.note("restart storm", *self.nodes.nodes.values())
        for _ in range(4):
            node = self.rng.choice(list(self.nodes.nodes.values()))
            if node.process is not None:
                node.kill()
            self.restart(node)
            self.rest(0.1, 0.6)

    def stop_properly(self) -> None:
        node = self.pick(self.rng.choice(("leader", "controller")))
        self.note("SIGTERM", node)
        self.end(node)
        self.restart(node)

    def hang(self, role: str) -> None:
        node = self.pick(role)
        self.note(f"SIGSTOP of a {role}", node)
        self.hang_for(self.rng.choice((0.5, 3.0, 5.0)), node)

    def hang_set(self) -> None:
        nodes = self.some()
        self.note("SIGSTOP of a random set", *nodes)
        self.hang_for(self.rng.choice((0.5, 3.0)), *nodes)

    def hang_for(self, seconds: float, *nodes: NodeProcess) -> None:
        ids = {node.node_id for node in nodes}
        self.nodes.unreachable |= ids
        for node in nodes:
            os.kill(node.pid, signal.SIGSTOP)
        time.sleep(seconds)
        for node in nodes:
            os.kill(node.pid, signal.SIGCONT)
        self.nodes.unreachable -= ids

    def stutter(self) -> None:
        """A node that gets a fifth of the time: slow, but never silent for long."""
        node = self.pick(self.rng.choice(("leader", "follower")))
        self.note("slowed", node)
        for _ in range(20):
            os.kill(node.pid, signal.SIGSTOP)
            time.sleep(0.16)
            os.kill(node.pid, signal.SIGCONT)
            time.sleep(0.04)

    # networks

    def isolate(self, kind: str) -> None:
        """Both ways from everyone; or from the other nodes, one way or both, while clients still reach it."""
        network = self.nodes.network
        assert network is not None
        node = self.pick(self.rng.choice(("leader", "follower", "controller")))
        others = [other for other in self.nodes.nodes if other != node.node_id]
        self.note(f"isolated: {kind}", node)
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
        node = self.pick(self.rng.choice(("leader", "follower")))
        self.note("slow network", node)
        network.slow_down(node.node_id)
        self.rest(3.0, 6.0)
        network.heal()

    # disks

    def fail_disk(self, operation: str, directory: str) -> None:
        """One directory is given up and the node serves on; without its metadata it ends. Either way it is back only
        after a restart, which finds what is on the disk."""
        node = self.pick(self.rng.choice(("leader", "follower")))
        self.note(f"failing disk: {operation}s of {directory}", node)
        path = node.data_dirs[0 if directory == "metadata" else 1]
        self.nodes.set_disk_fault(node, operation, [path])
        self.rest(1.5, 3.0)
        self.nodes.mend_disk(node)
        self.end(node)
        self.restart(node)

    def fill_disk(self) -> None:
        """No space left for anything, or for one directory; the node may well give up and end."""
        node = self.pick(self.rng.choice(("leader", "follower")))
        self.note("full disk", node)
        self.nodes.set_disk_fault(node, "full", self.rng.choice((node.data_dirs, node.data_dirs[1:])))
        self.rest(1.0, 3.0)
        self.nodes.mend_disk(node)

    def slow_disk(self) -> None:
        node = self.pick(self.rng.choice(("leader", "follower")))
        self.note("slow disk", node)
        self.nodes.set_disk_fault(node, "slow", node.data_dirs)
        self.rest(3.0, 5.0)
        self.nodes.mend_disk(node)

    # helpers

    def pick(self, role: str) -> NodeProcess:
        return self.nodes.node_for(role, self.rng)

    def some(self) -> list[NodeProcess]:
        nodes: Sequence[NodeProcess] = self.nodes.alive()
        return self.rng.sample(nodes, min(self.rng.choice((2, 2, 3)), len(nodes)))

    def rest(self, *choices: float) -> None:
        time.sleep(self.rng.choice(choices))

    def end(self, node: NodeProcess) -> None:
        """Politely, unless it does not listen."""
        assert node.process is not None
        if node.process.poll() is not None:
            self.note(f"ended with {node.process.returncode}", node)
        else:
            node.process.send_signal(signal.SIGTERM)
            try:
                node.process.wait(END_S)
            except subprocess.TimeoutExpired:
                self.note("SIGKILL after SIGTERM", node)
                node.process.send_signal(signal.SIGUSR1)  # its log shows what it is busy with
                time.sleep(0.5)
        node.kill()

    def restart(self, node: NodeProcess) -> None:
        if node.process is None:
            node.launch()

    def revive(self) -> None:
        for node in self.nodes.running():
            if node.process is not None and node.process.poll() is not None:
                self.note(f"ended with {node.process.returncode}", node)
                node.process = None
                node.launch()

    def note(self, kind: str, *nodes: NodeProcess) -> None:
        self.history.add("fault", kind=kind, nodes=[node.node_id for node in nodes], unsettled=not self.settled)

    def healed(self) -> None:
        self.history.add("healed")

    def heal_all(self) -> None:
        """After a test that ended in the middle of a fault."""
        for node in self.nodes.running():
            if node.node_id in self.nodes.unreachable and node.process is not None and node.process.poll() is None:
                os.kill(node.pid, signal.SIGCONT)
