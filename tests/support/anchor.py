"""Apache Kafka 4.3.1 itself, as the anchor that Barnabas's answers are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from support.processes import (
    ServerFailed,
    ServerProcess,
    combined_node_properties,
    free_ports,
    write_properties,
)
from support.tools import STORAGE, StockTools, java_command, run_process

READY_TIMEOUT_S = 90  # a JVM on two busy cores
CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
HEAP = ("-Xmx512m", "-Xms128m", "-XX:+UseSerialGC")


class AnchorKafka(ServerProcess):
    """One combined node of Apache Kafka, formatted `--standalone`, from the same properties that Barnabas
    gets.

    With `tools` the formatting runs in the shared JVM, which saves a JVM start.
    """

    def __init__(
        self, directory: Path, *, extra: Mapping[str, str] | None = None, tools: StockTools | None = None
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        port, controller_port = free_ports(2)
        self.directory = directory
        self.data_dir = directory / "data"
        self.properties_path = directory / "server.properties"
        settings = combined_node_properties(self.data_dir, port, controller_port, dict(extra or {}))
        write_properties(self.properties_path, settings)
        self._tools = tools
        command = [*java_command(HEAP), "kafka.Kafka", str(self.properties_path)]
        super().__init__("Apache Kafka", command, port, directory / "server.log", READY_TIMEOUT_S)

    def format(self) -> None:
        run = self._tools.run if self._tools is not None else run_process
        result = run(STORAGE, "format", "--standalone", "-t", CLUSTER_ID, "-c", str(self.properties_path))
        if result.code != 0:
            raise ServerFailed(f"formatting failed: {result.out}{result.err}")

    def start(self) -> None:
        if not (self.data_dir / "meta.properties").exists():
            self.format()
        super().start()

    def stop(self) -> None:
        self.terminate(60)
