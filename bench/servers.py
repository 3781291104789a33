"""The two brokers as their users start them, on data directories of the benchmark's own.

Both read the same properties: Apache Kafka's defaults, with the replication factors that a single node needs, no delay
before a group's first rebalance (three seconds of waiting would be the same on both sides and hide the rest), and a
second instead of a minute before the files of a deleted topic go: rounds that leave gigabytes behind would fill the
page cache, and later ones would pay for making room.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from support.anchor import AnchorKafka
from support.broker_process import BrokerProcess
from support.tools import java_command

# What kafka-server-start.sh gives the JVM when the user says nothing.
KAFKA_JVM = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)

# The tests' properties make internal topics small; Apache Kafka's defaults are these.
DEFAULTS = {
    "offsets.topic.num.partitions": "50",
    "transaction.state.log.num.partitions": "50",
    "share.coordinator.state.topic.num.partitions": "50",
    "log.segment.delete.delay.ms": "1000",
}

MANY_PARTITIONS_TIMEOUT_S = 300  # recovery of thousands of logs by a cold JVM


class Barnabas(BrokerProcess):
    def __init__(self, directory: Path, extra: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, extra={**DEFAULTS, **(extra or {})})
        self.ready_timeout_s = MANY_PARTITIONS_TIMEOUT_S

    def environment(self) -> dict[str, str]:
        """Compiled modules are kept between starts, as for any installed program."""
        environment = super().environment()
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        return environment


class Kafka(AnchorKafka):
    def __init__(self, directory: Path, extra: Mapping[str, str] | None = None) -> None:
        super().__init__(directory, extra={**DEFAULTS, **(extra or {})})
        self.command = [*java_command(KAFKA_JVM), "kafka.Kafka", str(self.properties_path)]
        self.ready_timeout_s = MANY_PARTITIONS_TIMEOUT_S

    def stop(self) -> None:
        self.terminate(MANY_PARTITIONS_TIMEOUT_S)
