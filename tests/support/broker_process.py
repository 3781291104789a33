"""The real Barnabas, started as a user starts it: `barnabas server-start <properties>` in a process of its
own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.jars import ROOT
from support.processes import ServerProcess, combined_node_properties, free_ports, write_properties

READY_TIMEOUT_S = 30  # generous: recovery after a crash on a loaded machine; a normal start takes under half a second


class BrokerProcess(ServerProcess):
    """One Barnabas node in `directory`: its properties file, its log and its data directory live there.

    `prefix` goes before the command (a tracer, say); `program` is a module that stands in for the command, with
    arguments of its own; `extra` are further lines of the properties file; `overrides` become `--override name=value`.
    """

    def __init__(
        self,
        directory: Path,
        *,
        extra: Mapping[str, str] | None = None,
        overrides: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        program: Sequence[str] = ("cli.main",),
        data_dir: Path | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        port, controller_port = free_ports(2)
        self.directory = directory
        self.data_dir = data_dir or directory / "data"
        self.properties_path = directory / "server.properties"
        settings = combined_node_properties(self.data_dir, port, controller_port, dict(extra or {}))
        write_properties(self.properties_path, settings)
        command = [*prefix, sys.executable, "-m", *program, "server-start", str(self.properties_path)]
        for name, value in (overrides or {}).items():
            command += ["--override", f"{name}={value}"]
        super().__init__("Barnabas", command, port, directory / "server.log", READY_TIMEOUT_S)

    def environment(self) -> dict[str, str]:
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
        environment["PYTHONUNBUFFERED"] = "1"
        return environment

    def stop(self) -> None:
        """SIGTERM must end in exit code 0: all logs synced, the clean-shutdown marker written."""
        code = self.terminate()
        assert code == 0, f"exit code {code} after SIGTERM:\n{self._log_tail()}"

    def restart(self) -> None:
        """Stop gracefully if still running, then start again on the same data and ports."""
        if self.process is not None:
            self.stop()
        self.start()
