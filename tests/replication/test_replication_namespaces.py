"""The networks in which tests cut nodes off: they do what they say, and nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from ipaddress import IPv4Network

import pytest
from support.namespaces import CannotIsolate, Namespaces, free_subnet, why_not_isolated


def names() -> set[str]:
    listed = subprocess.run(("ip", "netns", "list"), check=True, capture_output=True, text=True).stdout
    return {line.split()[0] for line in listed.splitlines() if line.strip()}


def links() -> str:
    return subprocess.run(("ip", "link", "show"), check=True, capture_output=True, text=True).stdout


@pytest.fixture
def isolation() -> None:
    """The probe itself has tried every kind of fault."""
    if why_not_isolated():
        pytest.skip(why_not_isolated())


def gone_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_nothing_is_left_behind(isolation: None) -> None:
    with Namespaces((1, 2)) as network:
        made = {name for name in names() if name.startswith(f"bn{os.getpid()}x")}
        assert len(made) == 3
        assert f"bv{os.getpid()}x" in links()
        with network.socket(2) as client:
            client.bind((network.host(2), 0))
    assert not made & names()
    assert f"bv{os.getpid()}x" not in links()


def test_leftovers_of_processes_that_are_gone_are_removed(isolation: None) -> None:
    """Also one that has our number, but that we did not make. What belongs to a living process stays."""
    dead, recycled, living = f"bn{gone_process()}x1-1", f"bn{os.getpid()}x999-1", f"bn{os.getppid()}x999-1"
    try:
        for name in (dead, recycled, living):
            subprocess.run(("ip", "netns", "add", name), check=True)
        with Namespaces((1,)):
            assert not {dead, recycled} & names()
            assert living in names()
    finally:
        subprocess.run(("ip", "netns", "del", living), check=True)


def test_two_of_one_process_do_not_meet(isolation: None) -> None:
    with Namespaces((1,)) as one, Namespaces((1,)) as other:
        assert one.host(1) != other.host(1)


def test_a_node_that_is_cut_off_is_not_reached(isolation: None) -> None:
    with Namespaces((1, 2)) as network, network.socket(1) as listener:
        listener.bind((network.host(1), 0))
        listener.listen()

        def is_reached() -> bool:
            with network.socket(2) as client:
                client.settimeout(1)
                return client.connect_ex(listener.getsockname()) == 0

        assert is_reached()
        network.unplug(1)
        assert not is_reached()
        network.heal()
        assert is_reached()


def test_no_subnet_that_a_route_knows() -> None:
    everywhere = IPv4Network("0.0.0.0/0")
    assert free_subnet([everywhere], 3) == IPv4Network("198.19.3.0/24")
    assert free_subnet([IPv4Network("198.19.3.128/25")], 3) == IPv4Network("198.19.4.0/24")
    assert free_subnet([IPv4Network("198.18.0.0/15")], 3) == IPv4Network("10.213.3.0/24")
    taken = [IPv4Network(net) for net in ("198.18.0.0/15", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")]
    with pytest.raises(CannotIsolate, match="in use"):
        free_subnet(taken, 3)
