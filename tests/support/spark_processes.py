"""Spark in processes of its own: a driver started as a user starts it, and a standalone cluster on the loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from support.jars import ROOT, pyspark_jars
from support.java import find_java
from support.processes import _die_with_parent, free_ports, wait_until
from support.spark import FAST, JVM_OPTIONS
from support.spark_jars import connector_directory

START_TIMEOUT_S = 60
RUN_TIMEOUT_S = 120


class Driver:
    """`barnabas pipeline run ...` in a process group of its own: Python and the JVM under it die together."""

    def __init__(self, directory: Path, job: str, *arguments: str, conf: dict[str, str] | None = None) -> None:
        self.log_path = directory / "driver.log"
        settings = {
            **FAST,
            "spark.driver.memory": "512m",
            "spark.driver.defaultJavaOptions": JVM_OPTIONS,
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            **(conf or {}),
        }
        command = [sys.executable, "-m", "cli.main", "pipeline", "run", job, "--jars", str(connector_directory())]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [*command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def wait(self) -> int:
        return self.process.wait(RUN_TIMEOUT_S)

    def interrupt(self) -> int:
        """Ctrl-C: the terminal signals the whole group."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.wait()

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()


class StandaloneCluster:
    """A master and workers from pyspark's own jars, one core each."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self.directory = directory
        port, *worker_ports = free_ports(1 + workers)
        self.url = f"spark://127.0.0.1:{port}"
        self.processes: list[subprocess.Popen[bytes]] = []
        master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]
        self._start("master", [*master, "--webui-port", "0"])
        wait_until(lambda: "started at " in self.log("master"), START_TIMEOUT_S, "the Spark master")
        for number, worker_port in enumerate(worker_ports):
            command = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--port", str(worker_port)]
            command += ["--webui-port", "0", "--cores", "1", "--memory", "512m"]
            self._start(f"worker-{number}", [*command, "--work-dir", str(directory / f"work-{number}"), self.url])
        for number in range(workers):
            registered = f"worker-{number}"
            wait_until(
                lambda name=registered: "Successfully registered" in self.log(name),  # type: ignore[misc]
                START_TIMEOUT_S,
                registered,
            )

    def _start(self, name: str, arguments: list[str]) -> None:
        logging = Path(__file__).with_name("log4j2-spark.properties")
        java = [find_java(), "-Xmx192m", *JVM_OPTIONS.split(), f"-Dlog4j2.configurationFile={logging.as_uri()}"]
        home = pyspark_jars().parent
        with open(self.directory / f"{name}.log", "ab") as log:
            self.processes.append(
                subprocess.Popen(
                    [*java, "-cp", str(pyspark_jars() / "*"), *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self.directory,
                    # What Spark's own scripts set; workers build the commands of their executors with it.
                    env={**os.environ, "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13"},
                    preexec_fn=_die_with_parent,
                )
            )

    def log(self, name: str) -> str:
        path = self.directory / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def executors_of(self, worker: int) -> list[str]:
        """Directories of the executors that a worker ran: <application>/<number>."""
        work = self.directory / f"work-{worker}"
        return sorted(str(path.relative_to(work)) for path in work.glob("app-*/*"))

    def close(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(30)
