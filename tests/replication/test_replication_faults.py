"""A minute of faults on three real nodes: nothing acknowledged is lost, nothing read vanishes, replicas are equal."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from py4j.java_gateway import JavaGateway
from support.fault_run import TESTS, run
from support.namespaces import may_isolate, why_not_isolated
from support.processes import wait_until
from support.report import Report

SECONDS = float(os.environ.get("BARNABAS_FAULT_SECONDS", "60"))
SEED = int(os.environ.get("BARNABAS_FAULT_SEED", "8"))


@pytest.mark.slow
def test_nothing_acknowledged_is_lost(tmp_path: Path, jvm: JavaGateway, report: Report) -> None:
    """What a run must have seen to count is in `fault_demands`, and part of the verdict."""
    outcome = run(tmp_path, SECONDS, SEED, jvm)
    report(f"seed {SEED}, {SECONDS:.0f} s of faults\n{outcome.text}")
    assert outcome.is_good, outcome.text


def test_isolation_was_possible() -> None:
    """Skipped where the networks of nodes could not be broken, so that it is seen what the test above leaves out."""
    if why_not_isolated():
        pytest.skip(why_not_isolated())


@pytest.mark.slow
def test_a_run_that_is_told_to_stop_clears_up(tmp_path: Path) -> None:
    """As a program, in the middle of its faults: no node, no JVM and no network is left, and what was seen is judged. A
    node that we make crash beforehand, unknown to the run, is told of.
    """
    command = [sys.executable, "-m", "support.fault_run", "600", "1"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=TESTS, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: tells(process, tmp_path, '"op":"fault"'), 60, "the first fault")
            jvms = children_of(process.pid, JVM)
            wait_until(lambda: crash_one(process, tmp_path), 60, "a crash in the history")
            nodes = children_of(process.pid, NODE)
            names, addresses = networks_of(nodes) if may_isolate() else (set(), set())
        finally:
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "the history is cut off" in out and "acknowledged" in out
    assert "ended by itself: node" in out and f"with code {-signal.SIGSEGV}" in out
    assert nodes
    assert not [pid for pid in nodes if Path(f"/proc/{pid}").exists()]
    assert jvms
    wait_until(lambda: not any(map(is_alive, jvms)), 10, "the end of the JVM, which has lost its parent")
    if may_isolate():
        assert names and addresses
        assert "inet" in ip("address")
        runs = tuple(name.rpartition("-")[0] for name in names)
        assert not [name for name in ip("netns").split() if name.startswith(runs)]
        assert not {address.rpartition(".")[0] for address in addresses} & set(re.findall(SUBNET, ip("address")))


NODE, JVM = b"server-start", b"py4j.GatewayServer"
SUBNET = r"inet ([0-9]+\.[0-9]+\.[0-9]+)\."


def tells(run: subprocess.Popen[str], directory: Path, what: str) -> bool:
    assert run.poll() is None, "it ended by itself"
    return any(what in path.read_text() for path in directory.glob("*/history.jsonl"))


def crash_one(run: subprocess.Popen[str], directory: Path) -> bool:
    """False if the run has killed it at the same moment."""
    os.kill(children_of(run.pid, NODE)[0], signal.SIGSEGV)
    with contextlib.suppress(TimeoutError):
        wait_until(lambda: tells(run, directory, f'"code":{-signal.SIGSEGV}'), 15, "the end of the node")
        return True
    return False


def children_of(run: int, kind: bytes) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            state, parent = (process / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(parent) == run and state != "Z" and kind in (process / "cmdline").read_bytes():
                found.append(int(process.name))
    return found


def is_alive(pid: int) -> bool:
    """One that has ended may wait for long until its new parent takes notice."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def networks_of(nodes: list[int]) -> tuple[set[str], set[str]]:
    """Names and addresses of the network namespaces of those that still run: the run goes on breaking them."""
    names = {name for pid in nodes if (name := ip("netns", "identify", str(pid)).strip())}
    told = "".join(ip("-n", name, "address", "show", "dev", "eth0") for name in names)
    return names, set(re.findall(r"inet ([0-9.]+)", told))


def ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False).stdout
