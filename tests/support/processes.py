"""Starting server processes for tests: free ports, readiness, and a sure end.

Readiness is an answer, not an open port: a server is ready when it answers ApiVersions.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

POLL_INTERVAL_S = 0.02  # a server that starts in half a second is found within a few percent of that
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>

# ApiVersions v0 with request header v1: key 18, version 0, correlation id 7, null client id.
_API_VERSIONS_REQUEST = struct.pack(">ihhih", 10, 18, 0, 7, -1)


class ServerFailed(RuntimeError):
    """A server ended or did not answer in time; the message carries the end of its log."""


def free_ports(count: int) -> list[int]:
    """Loopback ports that are free now, each told once. The kernel would give out those of outgoing connections, and
    one of these might have it by the time a server is started, or started again."""
    found: list[int] = []
    while len(found) < count:
        port = next(_PORTS)
        with socket.socket() as candidate, contextlib.suppress(OSError):
            candidate.bind(("127.0.0.1", port))
            found.append(port)
    return found


def _ports() -> Iterator[int]:
    """From a place of its own for each of the processes that share the tests, and below the kernel's own choice."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first, size = 10_000 + 5_000 * (worker % 4), 5_000
    at = random.randrange(size)
    while True:
        yield first + at
        at = (at + 1) % size


_PORTS = _ports()


def answers_api_versions(port: int, timeout_s: float = 2, host: str = "127.0.0.1") -> bool:
    """Whether a Kafka-speaking server answers on `port`."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(_API_VERSIONS_REQUEST)
            head = b""
            while len(head) < 10:
                received = connection.recv(10 - len(head))
                if not received:
                    return False
                head += received
    except OSError:
        return False
    _, correlation_id, error_code = struct.unpack(">iih", head)
    return (correlation_id, error_code) == (7, 0)


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Poll `condition` until it holds; a deadline instead of a fixed sleep."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s} s: {what}")
        time.sleep(POLL_INTERVAL_S)


def _die_with_parent() -> None:
    """In the child: be killed when the test process dies, so that a killed pytest leaves no servers."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class ServerProcess:
    """A server process with one Kafka listener on the loopback address."""

    def __init__(self, name: str, command: Sequence[str], port: int, log_path: Path, ready_timeout_s: float) -> None:
        self.name = name
        self.command = list(command)
        self.host = "127.0.0.1"
        self.port = port
        self.log_path = log_path
        self.ready_timeout_s = ready_timeout_s
        self.start_seconds = 0.0
        self._launched_at = 0.0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.name} is not running"
        return self.process.pid

    @property
    def log_text(self) -> str:
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def launch(self) -> None:
        """Start the process without waiting for it to be ready."""
        assert self.process is None, f"{self.name} is already running"
        self._launched_at = time.monotonic()
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.log_path.parent,
                env=self.environment(),
                preexec_fn=_die_with_parent,
            )

    def start(self) -> None:
        self.launch()
        self.await_ready()

    def await_ready(self) -> None:
        """Wait until the launched process answers."""
        begin = self._launched_at
        deadline = begin + self.ready_timeout_s
        while not answers_api_versions(self.port, host=self.host):
            assert self.process is not None
            if self.process.poll() is not None:
                code, self.process = self.process.returncode, None
                raise ServerFailed(f"{self.name} ended with code {code} at start:\n{self._log_tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise ServerFailed(f"{self.name}: no answer within {self.ready_timeout_s} s:\n{self._log_tail()}")
            time.sleep(POLL_INTERVAL_S)
        self.start_seconds = time.monotonic() - begin

    def _log_tail(self) -> str:
        return "\n".join(self.log_text.splitlines()[-40:])

    def terminate(self, timeout_s: float = 30) -> int:
        """SIGTERM and the exit code; a server that ignores it for `timeout_s` is killed and reported."""
        process, self.process = self.process, None
        assert process is not None, f"{self.name} is not running"
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise ServerFailed(f"{self.name} did not stop on SIGTERM:\n{self._log_tail()}") from None

    def kill(self) -> None:
        """SIGKILL: what a crash or the kernel's OOM killer does."""
        process, self.process = self.process, None
        assert process is not None, f"{self.name} is not running"
        process.kill()
        process.wait()

    def close(self) -> None:
        """For teardown: end the process if it still runs."""
        if self.process is not None:
            self.kill()


SMALL_INTERNAL_TOPICS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}
"""One partition and one replica each, and groups that form at once: what tests need of a node."""


def combined_node_properties(
    data_dir: Path, port: int, controller_port: int, extra: dict[str, str] | None = None
) -> dict[str, str]:
    """A combined broker and controller, written so that Barnabas and Apache Kafka read the very same file."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data_dir),
        "num.partitions": "1",
        **SMALL_INTERNAL_TOPICS,
        # Short enough that tests of groups do not wait for heartbeats and sessions.
        "group.min.session.timeout.ms": "1000",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": "10000",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "200",
        "group.consumer.assignment.interval.ms": "100",
        **(extra or {}),
    }


def write_properties(path: Path, settings: dict[str, str]) -> None:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
