"""A network of its own for each node of a cluster, so that single nodes can be cut off: Linux network namespaces.

Every node has a namespace with one address; a bridge connects them with each other and with the test, which has an
address there, too. Needs root. Packets are dropped, nothing is refused: that is what a broken switch does.
"""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Iterable

_THIN_LINE = ("rate", "400kbit", "burst", "3kb", "latency", "500ms")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


@functools.cache
def may_isolate() -> bool:
    """Whether this process may make namespaces and connect them."""
    if os.geteuid() != 0:
        return False
    try:
        with Namespaces([1]):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


class Namespaces:
    def __init__(self, node_ids: Iterable[int]) -> None:
        self._nodes = sorted(node_ids)
        self._tag = f"{os.getpid() % 100_000:05d}"
        self._subnet = f"10.{100 + os.getpid() % 100}.{os.getpid() // 100 % 250}"
        self._made: list[tuple[str, ...]] = []
        self._dropped: set[tuple[int, int]] = set()
        self._slowed: set[int] = set()

    def __enter__(self) -> Namespaces:
        try:
            bridge = f"bb{self._tag}"
            _ip("link", "add", bridge, "type", "bridge")
            self._made.append(("link", "del", bridge))
            _ip("address", "add", f"{self._subnet}.254/24", "dev", bridge)
            _ip("link", "set", bridge, "up")
            for node in self._nodes:
                name, outside = self._namespace(node), self._link(node)
                _ip("netns", "add", name)
                self._made.append(("netns", "del", name))
                _ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", name)
                self._made.append(("link", "del", outside))  # with the namespace alone it would linger for a moment
                _ip("link", "set", outside, "master", bridge)
                _ip("link", "set", outside, "up")
                _ip("-n", name, "address", "add", f"{self.host(node)}/24", "dev", "eth0")
                _ip("-n", name, "link", "set", "eth0", "up")
                _ip("-n", name, "link", "set", "lo", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for command in reversed(self._made):
            subprocess.run(["ip", *command], check=False, capture_output=True)
        self._made.clear()

    def _namespace(self, node: int) -> str:
        return f"bn{self._tag}-{node}"

    def _link(self, node: int) -> str:
        return f"bv{self._tag}-{node}"

    def host(self, node: int) -> str:
        return f"{self._subnet}.{node}"

    def command(self, node: int, command: list[str]) -> list[str]:
        """`ip netns exec` becomes the command itself, so signals reach it."""
        return ["ip", "netns", "exec", self._namespace(node), *command]

    def unplug(self, node: int) -> None:
        """Cut off from everyone, both ways."""
        _ip("link", "set", self._link(node), "down")

    def plug_in(self, node: int) -> None:
        _ip("link", "set", self._link(node), "up")

    def drop(self, sender: int, receiver: int) -> None:
        """What `sender` sends to `receiver` is lost; the other direction goes on."""
        _ip("-n", self._namespace(sender), "route", "add", "blackhole", f"{self.host(receiver)}/32")
        self._dropped.add((sender, receiver))

    def slow_down(self, node: int) -> None:
        """A thin line with a short queue, both ways: packets are late, and lost when more come."""
        for where in (("-n", self._namespace(node)), ()):
            device = "eth0" if where else self._link(node)
            _run("tc", *where, "qdisc", "add", "dev", device, "root", "tbf", *_THIN_LINE)
        self._slowed.add(node)

    def heal(self) -> None:
        for node in self._slowed:
            _run("tc", "-n", self._namespace(node), "qdisc", "del", "dev", "eth0", "root")
            _run("tc", "qdisc", "del", "dev", self._link(node), "root")
        self._slowed.clear()
        for sender, receiver in self._dropped:
            _ip("-n", self._namespace(sender), "route", "del", "blackhole", f"{self.host(receiver)}/32")
        self._dropped.clear()
        for node in self._nodes:
            self.plug_in(node)
