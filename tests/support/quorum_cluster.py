"""Clusters of several node processes on the loopback address, of Barnabas, of Apache Kafka, or of both."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from support.anchor import HEAP
from support.jars import ROOT
from support.namespaces import Namespaces
from support.processes import (
    SMALL_INTERNAL_TOPICS,
    ServerFailed,
    ServerProcess,
    free_ports,
    wait_until,
    write_properties,
)
from support.tools import STORAGE, StockTools, java_command, run_process
from support.wire import ask

from cli.main import main as barnabas
from protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    ResponsePartitionData,
    TopicData,
)
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.uuids import Uuid
from storage.meta_properties import read_meta_properties

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
OURS = "Barnabas"
KAFKA = "Apache Kafka"
LATEST = -1
READY_S = {OURS: 30, KAFKA: 90}


class NodeSpec(NamedTuple):
    roles: str
    software: str = OURS


class Placed(NamedTuple):
    """A partition as metadata tells it. The ISR is sorted, the replicas are in order: the first one is preferred."""

    leader: int
    isr: list[int]
    replicas: list[int]


class NodeProcess(ServerProcess):
    """One node of a cluster. `port` is its first listener: a broker's own, or a controller's."""

    def __init__(
        self,
        node_id: int,
        spec: NodeSpec,
        directory: Path,
        settings: dict[str, str],
        ports: tuple[int, ...],
        program: Sequence[str] = ("cli.main",),
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.node_id = node_id
        self.spec = spec
        self.directory = directory
        self.data_dirs = [Path(path) for path in settings["log.dirs"].split(",")]
        self.data_dir = self.data_dirs[0]  # with the metadata
        self.directory_id = Uuid.random()
        self.controller_port = ports[-1] if "controller" in spec.roles else 0
        self.properties_path = directory / "node.properties"
        self.settings = settings
        self._program = program
        write_properties(self.properties_path, settings)
        super().__init__("", [], ports[0], directory / "server.log", 0)
        self.run_as(spec.software)

    def run_as(self, software: str) -> None:
        """From the next start on; the properties and the data stay as they are."""
        self.spec = self.spec._replace(software=software)
        if software == OURS:
            self.command = [sys.executable, "-m", *self._program, "server-start", str(self.properties_path)]
        else:
            self.command = [*java_command(HEAP), "kafka.Kafka", str(self.properties_path)]
        self.name = f"{software} node {self.node_id}"
        self.ready_timeout_s = READY_S[software]

    def environment(self) -> dict[str, str]:
        if self.spec.software != OURS:
            return dict(os.environ)
        path = os.pathsep.join((str(ROOT), str(ROOT / "tests")))
        return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}

    @property
    def stored_directory_id(self) -> Uuid:
        """As formatting made it, for a node that is no initial controller."""
        stored = read_meta_properties(str(self.data_dir))
        assert stored is not None and stored.directory_id is not None
        return stored.directory_id

    @property
    def is_controller(self) -> bool:
        return "controller" in self.spec.roles

    @property
    def is_broker(self) -> bool:
        return "broker" in self.spec.roles


class QuorumCluster:
    """Formatted on construction, started with `start`. Node ids are the keys of `nodes`.

    `static` means controller.quorum.voters, kraft.version 0; otherwise the voters are in the log (KIP-853). Nodes in
    `joining` are controllers that are no voters at first. `program` is a module that stands in for our command, with
    arguments of its own; every node runs in its own directory.
    """

    def __init__(
        self,
        directory: Path,
        nodes: Mapping[int, NodeSpec],
        *,
        static: bool = False,
        joining: Iterable[int] = (),
        extra: Mapping[str, str] | None = None,
        tools: StockTools | None = None,
        network: Namespaces | None = None,
        log_directories: int = 1,
        program: Sequence[str] = ("cli.main",),
    ) -> None:
        self.nodes: dict[int, NodeProcess] = {}
        hosts = {node_id: "127.0.0.1" if network is None else network.host(node_id) for node_id in nodes}
        self._joining = set(joining)
        self._static = static
        self._tools = tools
        ports = {node_id: tuple(free_ports(len(spec.roles.split(",")))) for node_id, spec in nodes.items()}
        controllers = [node_id for node_id, spec in nodes.items() if "controller" in spec.roles]
        voters = [node_id for node_id in controllers if node_id not in self._joining]
        quorum = {
            "controller.quorum.voters": ",".join(
                f"{node_id}@{hosts[node_id]}:{ports[node_id][-1]}" for node_id in voters
            )
        }
        if not static:
            servers = ",".join(f"{hosts[node_id]}:{ports[node_id][-1]}" for node_id in controllers)
            quorum = {"controller.quorum.bootstrap.servers": servers}
        self._directory = directory
        self._common = quorum | dict(extra or {})
        self._log_directories = log_directories
        self._program = program
        for node_id, spec in nodes.items():
            node = self._make(node_id, spec, ports[node_id], hosts[node_id])
            if network is not None:
                node.command = network.command(node_id, node.command)
        initial = ",".join(
            f"{node_id}@{hosts[node_id]}:{self.nodes[node_id].controller_port}:{self.nodes[node_id].directory_id}"
            for node_id in voters
        )
        for node in self.nodes.values():
            self._format(node, initial)

    def _make(self, node_id: int, spec: NodeSpec, ports: tuple[int, ...], host: str = "127.0.0.1") -> NodeProcess:
        home = self._directory / f"node{node_id}"
        settings = _settings(node_id, spec, home, ports, host) | self._common
        if self._log_directories > 1 and "broker" in spec.roles:
            settings["log.dirs"] = ",".join(str(home / f"data{at}") for at in range(1, self._log_directories + 1))
        node = self.nodes[node_id] = NodeProcess(node_id, spec, home, settings, ports, self._program)
        node.host = host
        return node

    def add_broker(self, node_id: int, software: str = OURS) -> NodeProcess:
        """One more than there were, formatted and not started."""
        node = self._make(node_id, NodeSpec("broker", software), tuple(free_ports(1)))
        self._format(node, "")
        return node

    def replace_disk(self, node_id: int) -> None:
        """Of a stopped broker: an empty one, formatted for the same node of the same cluster."""
        node = self.nodes[node_id]
        shutil.rmtree(node.data_dir)
        self._format(node, "")

    def _format(self, node: NodeProcess, initial: str) -> None:
        flags: list[str] = []
        if node.is_controller and not self._static:
            joins = node.node_id in self._joining
            flags = ["--no-initial-controllers"] if joins else ["--initial-controllers", initial]
        arguments = ["format", "--cluster-id", CLUSTER_ID, "--config", str(node.properties_path), *flags]
        if node.spec.software == OURS:
            output = io.StringIO()
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                code = barnabas(["storage", *arguments])
            if code != 0:
                raise ServerFailed(f"formatting {node.name} failed: {output.getvalue()}")
        else:
            run = self._tools.run if self._tools is not None else run_process
            result = run(STORAGE, *arguments)
            if result.code != 0:
                raise ServerFailed(f"formatting {node.name} failed: {result.out}{result.err}")

    # Life

    def start(self, node_ids: Iterable[int] | None = None) -> None:
        """All at once, because none is ready before a majority is there."""
        wanted = [self.nodes[node_id] for node_id in (self.nodes if node_ids is None else node_ids)]
        for node in wanted:
            node.launch()
        for node in wanted:
            node.await_ready()

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()

    def running(self) -> list[NodeProcess]:
        return [node for node in self.nodes.values() if node.process is not None]

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.running() if node.is_broker)

    @property
    def bootstrap_controllers(self) -> str:
        return ",".join(f"{node.host}:{node.controller_port}" for node in self.running() if node.is_controller)

    # What it is like

    def quorum(self, node_ids: Iterable[int] | None = None) -> ResponsePartitionData | None:
        """What the leader says of the quorum; None while there is none among the nodes."""
        wanted = [n for n in self.running() if n.is_controller and (node_ids is None or n.node_id in node_ids)]
        for node in wanted:
            request = DescribeQuorumRequest(
                topics=[TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
            )
            try:
                response = ask(node.controller_port, request, 2, timeout_s=2, host=node.host)
            except OSError:
                continue
            assert isinstance(response, DescribeQuorumResponse)
            if response.error_code == 0 and response.topics and response.topics[0].partitions[0].error_code == 0:
                return response.topics[0].partitions[0]
        return None

    def leader(self, node_ids: Iterable[int] | None = None) -> int:
        found = self.quorum(node_ids)
        return -1 if found is None else found.leader_id

    def await_leader(self, timeout_s: float = 20, *, other_than: int = -1) -> int:
        seen: list[int] = [-1]

        def is_led() -> bool:
            seen[0] = self.leader()
            return seen[0] not in (-1, other_than)

        wait_until(is_led, timeout_s, f"a leader of the quorum other than {other_than}")
        return seen[0]

    def brokers_known_to(self, node_id: int) -> list[int]:
        """The brokers that a broker tells its clients of."""
        response = ask(
            self.nodes[node_id].port, MetadataRequest(topics=[]), 12, timeout_s=5, host=self.nodes[node_id].host
        )
        assert isinstance(response, MetadataResponse)
        return sorted(broker.node_id for broker in response.brokers)

    def partitions(self, topic: str) -> dict[int, Placed]:
        """As the first running broker that answers tells it; empty if none does or the topic is not known."""
        for node in self.running():
            if node.is_broker:
                request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
                try:
                    (found,) = ask(node.port, request, 12, timeout_s=3, host=node.host).topics
                except OSError:
                    continue
                return {
                    one.partition_index: Placed(one.leader_id, sorted(one.isr_nodes), list(one.replica_nodes))
                    for one in sorted(found.partitions, key=lambda one: one.partition_index)
                }
        return {}

    def high_watermark(self, topic: str, partition: int) -> int:
        """As the leader tells it to a consumer."""
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])], isolation_level=0
        )
        leader = self.nodes[self.partitions(topic)[partition].leader]
        (answer,) = ask(leader.port, request, 7, timeout_s=5, host=leader.host).topics[0].partitions
        assert answer.error_code == 0, answer
        return int(answer.offset)

    def await_isr(self, topic: str, *members: int, timeout_s: float = 30) -> None:
        """Every partition has a leader, and just these replicas are in sync."""

        def holds() -> bool:
            found = self.partitions(topic).values()
            return bool(found) and all(one.isr == list(members) and one.leader in members for one in found)

        wait_until(holds, timeout_s, f"{topic} with the in-sync replicas {members}")


def _settings(node_id: int, spec: NodeSpec, home: Path, ports: tuple[int, ...], host: str) -> dict[str, str]:
    listeners = []
    if "broker" in spec.roles:
        listeners.append(f"PLAINTEXT://{host}:{ports[0]}")
    if "controller" in spec.roles:
        listeners.append(f"CONTROLLER://{host}:{ports[-1]}")
    return {
        "process.roles": spec.roles,
        "node.id": str(node_id),
        "listeners": ",".join(listeners),
        "advertised.listeners": ",".join(listeners),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(home / "data"),
        "num.partitions": "1",
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
        **SMALL_INTERNAL_TOPICS,
    }


def combined(count: int = 3) -> dict[int, NodeSpec]:
    return {node_id: NodeSpec("broker,controller") for node_id in range(1, count + 1)}


def separate(controllers: int = 3, brokers: int = 3) -> dict[int, NodeSpec]:
    """Controllers from 101 on, brokers from 1 on."""
    return {
        **{101 + index: NodeSpec("controller") for index in range(controllers)},
        **{1 + index: NodeSpec("broker") for index in range(brokers)},
    }
