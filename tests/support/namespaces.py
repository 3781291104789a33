"""A network of its own for each node of a cluster, so that single nodes can be cut off: Linux network namespaces.

Every node has a namespace with one address. A bridge connects them with each other and with the test, which has an
address there, too. The bridge is in a namespace of its own: in the host's, its netfilter might drop what passes over
bridges. Needs root and iproute2. Packets are dropped, nothing is refused: that is what a broken switch does.

Names carry the process id of the test; those of processes that are gone are removed by the next one.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Network

_THIN_LINE = ("rate", "400kbit", "burst", "3kb", "latency", "500ms")
_NAME = re.compile(r"bn(\d+)x\d+-\w+")
_PREFIXES = ("198.19", "10.213", "172.29", "192.168")
"""Meant for private use; the first, for trials of network devices, is the least likely to be in use."""
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
_CLONE_NEWNET = 0x40000000
_ANSWER_S = 2.0
_NO_ANSWER_S = 0.4
_serials = itertools.count(1)
_ours: set[str] = set()
"""Namespaces that this process has made, and not removed."""


class CannotIsolate(RuntimeError):
    """Why there are no namespaces to be had, in one line."""


def _run(name: str, *arguments: str) -> str:
    program = shutil.which(name, path=_PATH)
    if program is None:
        raise CannotIsolate(f"`{name}` is missing: install iproute2")
    done = subprocess.run((program, *arguments), check=False, capture_output=True, text=True)
    if done.returncode:
        raise CannotIsolate(f"`{name} {' '.join(arguments)}` fails: {done.stderr.strip() or done.returncode}")
    return done.stdout


def _ip(*arguments: str) -> str:
    return _run("ip", *arguments)


@functools.cache
def why_not_isolated() -> str:
    """Why nodes cannot be cut off here; empty if they can. It is tried, because a kernel may lack any part of it."""
    if os.geteuid() != 0:
        return "this process is not root"
    try:
        with Namespaces((1, 2)) as network:
            _try(network)
    except (OSError, CannotIsolate) as error:
        return str(error)
    return ""


def may_isolate() -> bool:
    return not why_not_isolated()


def _try(network: Namespaces) -> None:
    with network.socket(1) as listener:
        listener.bind((network.host(1), 0))
        listener.listen()
        address = listener.getsockname()

        def reaches(what: str, client: socket.socket, expected: bool = True) -> None:
            with client:
                client.settimeout(_ANSWER_S if expected else _NO_ANSWER_S)
                reached = client.connect_ex(address) == 0
            if reached is not expected:
                raise CannotIsolate(f"{what}: a node is {'reached' if reached else 'not reached'}")

        reaches("from the test", socket.socket())
        reaches("from another node", network.socket(2))
        network.drop(1, 2)
        reaches("while what it sends is dropped", network.socket(2), expected=False)
        network.heal()
        network.unplug(1)
        reaches("while it is unplugged", socket.socket(), expected=False)
        network.heal()
        network.slow_down(1)
        reaches("over a slow line", network.socket(2))
        network.heal()
        reaches("after all", network.socket(2))


class Namespaces:
    def __init__(self, node_ids: Iterable[int]) -> None:
        self._nodes = sorted(node_ids)
        self._tag = f"{os.getpid()}x{next(_serials)}"
        self._switch = f"bn{self._tag}-switch"
        self._subnet = ""
        self._dropped: set[tuple[int, int]] = set()
        self._slowed: set[int] = set()

    def __enter__(self) -> Namespaces:
        _remove_leftovers()
        self._subnet = str(free_subnet(_routes(), os.getpid()).network_address).removesuffix(".0")
        try:
            self._make(self._switch)
            self._in_switch("link", "add", "bridge", "type", "bridge")
            self._in_switch("link", "set", "bridge", "up")
            test = f"bv{self._tag}"
            _ip("link", "add", test, "type", "veth", "peer", "name", "test", "netns", self._switch)
            self._plug_into_bridge("test")
            _ip("address", "add", f"{self._subnet}.254/24", "dev", test)
            _ip("link", "set", test, "up")
            for node in self._nodes:
                name = self._namespace(node)
                self._make(name)
                port = ("link", "add", self._port(node), "type", "veth", "peer", "name", "eth0", "netns", name)
                self._in_switch(*port)
                self._plug_into_bridge(self._port(node))
                _ip("-n", name, "address", "add", f"{self.host(node)}/24", "dev", "eth0")
                _ip("-n", name, "link", "set", "eth0", "up")
                _ip("-n", name, "link", "set", "lo", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        mine = [name for name in _ours if name.startswith(f"bn{self._tag}-")]
        _remove(mine)
        _ours.difference_update(mine)

    def _make(self, name: str) -> None:
        _ip("netns", "add", name)
        _ours.add(name)

    def _in_switch(self, *arguments: str) -> None:
        _ip("-n", self._switch, *arguments)

    def _plug_into_bridge(self, port: str) -> None:
        self._in_switch("link", "set", port, "master", "bridge")
        self._in_switch("link", "set", port, "up")

    def _namespace(self, node: int) -> str:
        return f"bn{self._tag}-{node}"

    def _port(self, node: int) -> str:
        return f"node{node}"

    def host(self, node: int) -> str:
        return f"{self._subnet}.{node}"

    def command(self, node: int, command: list[str]) -> list[str]:
        """`ip netns exec` becomes the command itself, so signals reach it."""
        return [shutil.which("ip", path=_PATH) or "ip", "netns", "exec", self._namespace(node), *command]

    def socket(self, node: int) -> socket.socket:
        """Of this process, in the network of the node: a socket stays where it was made."""
        made: list[socket.socket] = []

        def make() -> None:
            with open(f"/run/netns/{self._namespace(node)}") as namespace:
                if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), _CLONE_NEWNET) == 0:
                    made.append(socket.socket())

        thread = threading.Thread(target=make)  # it alone moves there, and ends
        thread.start()
        thread.join()
        if not made:
            raise CannotIsolate(f"cannot enter the namespace of node {node}")
        return made[0]

    def unplug(self, node: int) -> None:
        """Cut off from everyone, both ways."""
        self._in_switch("link", "set", self._port(node), "down")

    def plug_in(self, node: int) -> None:
        self._in_switch("link", "set", self._port(node), "up")

    def drop(self, sender: int, receiver: int) -> None:
        """What `sender` sends to `receiver` is lost; the other direction goes on."""
        _ip("-n", self._namespace(sender), "route", "add", "blackhole", f"{self.host(receiver)}/32")
        self._dropped.add((sender, receiver))

    def slow_down(self, node: int) -> None:
        """A thin line with a short queue, both ways: packets are late, and lost when more come."""
        for namespace, device in self._ends(node):
            _run("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf", *_THIN_LINE)
        self._slowed.add(node)

    def heal(self) -> None:
        for node in self._slowed:
            for namespace, device in self._ends(node):
                _run("tc", "-n", namespace, "qdisc", "del", "dev", device, "root")
        self._slowed.clear()
        for sender, receiver in self._dropped:
            _ip("-n", self._namespace(sender), "route", "del", "blackhole", f"{self.host(receiver)}/32")
        self._dropped.clear()
        for node in self._nodes:
            self.plug_in(node)

    def _ends(self, node: int) -> Iterator[tuple[str, str]]:
        """Of the node's line: namespace and device."""
        yield self._namespace(node), "eth0"
        yield self._switch, self._port(node)


def free_subnet(known: Iterable[IPv4Network], seed: int) -> IPv4Network:
    """One that no route leads to. Where to begin hangs on the seed, so that two processes hardly take the same."""
    taken = [network for network in known if network.prefixlen > 0]
    for prefix in _PREFIXES:
        for at in range(256):
            candidate = IPv4Network(f"{prefix}.{(seed + at) % 256}.0/24")
            if not any(candidate.overlaps(network) for network in taken):
                return candidate
    raise CannotIsolate("every private network is in use")


def _routes() -> Iterator[IPv4Network]:
    """A line begins with the destination, or with a type before it."""
    for line in _ip("-4", "route", "show", "table", "all").splitlines():
        for word in line.split()[:2]:
            try:
                yield IPv4Network(word)
            except ValueError:
                continue


def _remove_leftovers() -> None:
    """Of processes that are gone; one of our own number that we have not made is of an earlier process."""
    names = [line.split()[0] for line in _ip("netns", "list").splitlines() if line.strip()]
    _remove(name for name in names if (found := _NAME.fullmatch(name)) and not _is_in_use(name, int(found[1])))


def _is_in_use(name: str, pid: int) -> bool:
    return name in _ours if pid == os.getpid() else os.path.exists(f"/proc/{pid}")


def _remove(names: Iterable[str]) -> None:
    """With their lines, which would otherwise linger for a moment, and the address of the test be known twice."""
    for name in names:
        for arguments in (("link", "del", f"bv{name[2:].split('-')[0]}"), ("netns", "del", name)):
            subprocess.run([shutil.which("ip", path=_PATH) or "ip", *arguments], check=False, capture_output=True)
