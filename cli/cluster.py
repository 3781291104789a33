"""`barnabas cluster`: three combined nodes on the loopback address, to try a cluster out.

Each node is a process of its own, started as a user would start it: formatted with `barnabas storage format`, run with
`barnabas server-start`. The data stays in the directory and is used again at the next start.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

NODES: Final = (1, 2, 3)
READY_S: Final = 60.0
STOP_S: Final = 20.0
POLL_S: Final = 0.1


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "cluster",
        help="start three nodes on this machine, to try a cluster out",
        description="Starts three combined nodes on the loopback address, says how to use them, and stops them all on "
        "Ctrl-C. Their data stays in the directory and is used again.",
        allow_abbrev=False,
    )
    parser.add_argument("--directory", default="data/cluster", metavar="DIR", help="where their data and logs go")
    parser.add_argument(
        "--port", type=int, default=9092, metavar="PORT", help="the first node's; the others follow by tens"
    )


def cluster(options: argparse.Namespace) -> int:
    directory = Path(options.directory).absolute()
    ports = {node: options.port + 10 * (node - 1) for node in NODES}
    if max(ports.values()) + 1 > 65535 or options.port < 1:
        print(f"barnabas: --port {options.port} leaves no room for three nodes", file=sys.stderr)
        return 1
    try:
        _format(directory, ports)
    except OSError as error:
        print(f"barnabas: {directory} cannot be used: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"barnabas: formatting failed: {(error.stdout + error.stderr).strip()}", file=sys.stderr)
        return 1
    nodes: dict[int, subprocess.Popen[bytes]] = {}
    signal.signal(signal.SIGTERM, _as_interrupt)
    try:
        for node in NODES:
            nodes[node] = _launch(directory, node)
        failed = _await_ready(nodes, ports)
        if failed is not None:
            print(f"barnabas: node {failed} did not start; see {directory / f'node{failed}.log'}", file=sys.stderr)
            return 1
        print(_help(directory, ports), flush=True)
        return _run_until_interrupted(nodes, directory)
    except KeyboardInterrupt:
        return 0
    finally:
        _stop(nodes)


def _as_interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _format(directory: Path, ports: dict[int, int]) -> None:
    """Once: the directory ids are part of the first voter set, so all nodes are formatted together."""
    directory.mkdir(parents=True, exist_ok=True)
    servers = ",".join(f"127.0.0.1:{port + 1}" for port in ports.values())
    for node, port in ports.items():
        (directory / f"node{node}.properties").write_text(_properties(directory, node, port, servers))
    if all((directory / f"node{node}" / "meta.properties").exists() for node in NODES):
        return
    ids = {name: _run("storage", "random-uuid").stdout.strip() for name in ("cluster", *NODES)}
    voters = ",".join(f"{node}@127.0.0.1:{port + 1}:{ids[node]}" for node, port in ports.items())
    for node in NODES:
        config = str(directory / f"node{node}.properties")
        _run("storage", "format", "-t", ids["cluster"], "-c", config, "--initial-controllers", voters)


def _properties(directory: Path, node: int, port: int, servers: str) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "controller.quorum.bootstrap.servers": servers,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(directory / f"node{node}"),
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "cli.main", *arguments]


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(_command(*arguments), check=True, capture_output=True, text=True)


def _launch(directory: Path, node: int) -> subprocess.Popen[bytes]:
    """In a session of its own: Ctrl-C is for this process, which then stops the nodes in order."""
    with open(directory / f"node{node}.log", "ab") as log:
        return subprocess.Popen(
            _command("server-start", str(directory / f"node{node}.properties")),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _await_ready(nodes: dict[int, subprocess.Popen[bytes]], ports: dict[int, int]) -> int | None:
    """The node that ended or did not open its port in time, None if all did."""
    deadline = time.monotonic() + READY_S
    waiting = list(NODES)
    while waiting:
        node = waiting[0]
        if nodes[node].poll() is not None or time.monotonic() > deadline:
            return node
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", ports[node]), timeout=1):
            waiting.pop(0)
            continue
        time.sleep(POLL_S)
    return None


def _help(directory: Path, ports: dict[int, int]) -> str:
    servers = ",".join(f"127.0.0.1:{port}" for port in ports.values())
    controllers = ",".join(f"127.0.0.1:{port + 1}" for port in ports.values())
    return "\n".join(
        (
            "Three nodes are running, each of them broker and controller.",
            f"  bootstrap servers      {servers}",
            f"  bootstrap controllers  {controllers}",
            f"  data and logs          {directory}",
            "",
            "Try, with Apache Kafka's own tools:",
            f"  kafka-topics.sh --bootstrap-server {servers} --create --topic t --partitions 3",
            f"  kafka-console-producer.sh --bootstrap-server {servers} --topic t",
            f"  kafka-metadata-quorum.sh --bootstrap-controller {controllers} describe --status",
            "",
            "Kill one of the processes and see the others go on. Ctrl-C stops them all.",
        )
    )


def _run_until_interrupted(nodes: dict[int, subprocess.Popen[bytes]], directory: Path) -> int:
    """A node that ends is reported; the others go on, and so does this command until the last one is gone."""
    running = {process.pid: node for node, process in nodes.items()}
    while running:
        pid, status = os.wait()
        node = running.pop(pid, None)
        if node is not None:
            nodes[node].returncode = os.waitstatus_to_exitcode(status)
            print(f"node {node} ended ({_how(status)}); see {directory / f'node{node}.log'}", flush=True)
    return 1


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def _stop(nodes: dict[int, subprocess.Popen[bytes]]) -> None:
    """All at once: none of them waits for a majority that is going as well."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for process in nodes.values():
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + STOP_S
    for process in nodes.values():
        try:
            process.wait(max(deadline - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
