"""The stock tools on a quorum of three: describing it, adding a controller, removing one, also the leader."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from support.processes import wait_until
from support.quorum_cluster import CLUSTER_ID, NodeSpec, QuorumCluster, combined
from support.tools import CLUSTER, CONFIGS, FEATURES, METADATA_QUORUM, StockTools, ToolResult

pytestmark = pytest.mark.stock

JOINING = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorumCluster]:
    nodes = {**combined(), JOINING: NodeSpec("controller")}
    made = QuorumCluster(tmp_path_factory.mktemp("tools"), nodes, joining=[JOINING])
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def quorum_tool(cluster: QuorumCluster, stock_tools: StockTools) -> Iterator[QuorumTool]:
    cluster.await_leader()
    yield QuorumTool(cluster, stock_tools)


class QuorumTool:
    def __init__(self, cluster: QuorumCluster, tools: StockTools) -> None:
        self._cluster = cluster
        self._tools = tools

    def run(self, *arguments: str, by: str = "--bootstrap-server") -> ToolResult:
        address = self._cluster.bootstrap if by == "--bootstrap-server" else self._cluster.bootstrap_controllers
        return self._tools.run(METADATA_QUORUM, by, address, *arguments)

    def status(self, by: str = "--bootstrap-server") -> dict[str, str]:
        result = self.run("describe", "--status", by=by)
        assert result.code == 0 and not result.err, result
        return dict(re.split(r":\s+", line, maxsplit=1) for line in result.lines)

    def voters(self) -> list[int]:
        return sorted(voter["id"] for voter in json.loads(self.status()["CurrentVoters"]))


@pytest.mark.parametrize("by", ["--bootstrap-server", "--bootstrap-controller"])
def test_describe_tells_who_leads_and_how_far_the_others_are(
    cluster: QuorumCluster, quorum_tool: QuorumTool, by: str
) -> None:
    status = quorum_tool.status(by)
    assert status["ClusterId"] == CLUSTER_ID
    assert int(status["LeaderId"]) == cluster.leader()
    assert int(status["HighWatermark"]) > 0 and int(status["MaxFollowerLag"]) <= 5
    voters = {voter["id"]: voter for voter in json.loads(status["CurrentVoters"])}
    for node_id in (1, 2, 3):
        node = cluster.nodes[node_id]
        assert voters[node_id]["directoryId"] == str(node.stored_directory_id)
        assert voters[node_id]["endpoints"] == [f"CONTROLLER://127.0.0.1:{node.controller_port}"]
    replication = quorum_tool.run("describe", "--replication", by=by)
    assert replication.code == 0
    rows = [re.split(r"\s+", line.strip()) for line in replication.lines[1:]]
    kinds = {int(row[0]): row[-1] for row in rows}
    assert sorted(kinds.values()) == ["Follower", "Follower", "Leader", "Observer"] and kinds[JOINING] == "Observer"
    assert all(int(row[3]) <= 5 for row in rows), f"lag in {rows}"


def test_controllers_tell_of_themselves(cluster: QuorumCluster, stock_tools: StockTools) -> None:
    """KIP-919: tools that know only a controller's address."""
    cluster.await_leader()
    at = ("--bootstrap-controller", cluster.bootstrap_controllers)
    endpoints = stock_tools.run(CLUSTER, "list-endpoints", *at)
    assert endpoints.code == 0, endpoints
    listed = [re.split(r"\s+", line.strip()) for line in endpoints.lines[1:]]
    assert sorted((int(row[0]), int(row[2]), row[-1]) for row in listed) == [
        (node.node_id, node.controller_port, "controller") for node in cluster.nodes.values()
    ]
    assert stock_tools.run(CLUSTER, "cluster-id", *at).out == f"Cluster ID: {CLUSTER_ID}\n"
    features = stock_tools.run(FEATURES, *at, "describe")
    assert features.code == 0 and re.search(r"kraft\.version.*FinalizedVersionLevel: 1\b", features.out)


@pytest.mark.parametrize("by", ["--bootstrap-server", "--bootstrap-controller"])
def test_a_brokers_own_setting_goes_before_the_default_of_all(
    cluster: QuorumCluster, stock_tools: StockTools, by: str
) -> None:
    cluster.await_leader()
    at = (by, cluster.bootstrap if by == "--bootstrap-server" else cluster.bootstrap_controllers)

    def change(who: tuple[str, ...], *what: str) -> None:
        result = stock_tools.run(CONFIGS, *at, "--entity-type", "brokers", *who, "--alter", *what)
        assert result.code == 0 and result.out.startswith("Completed updating"), result

    def synonyms(broker: int) -> str:
        """As that broker says: in the order of precedence."""
        who = ("--entity-type", "brokers", "--entity-name", str(broker), "--describe", "--all")
        result = stock_tools.run(CONFIGS, "--bootstrap-server", cluster.nodes[broker].bootstrap, *who)
        assert result.code == 0, result
        (line,) = [line.strip() for line in result.lines if line.strip().startswith("log.cleaner.threads=")]
        return line.split(" ", 1)[0] + " " + line[line.index("synonyms=") :]

    static = "DEFAULT_CONFIG:log.cleaner.threads=1}"
    everywhere = f"DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.threads=2, {static}"
    change(("--entity-default",), "--add-config", "log.cleaner.threads=2")
    change(("--entity-name", "2"), "--add-config", "log.cleaner.threads=1")
    own = f"log.cleaner.threads=1 synonyms={{DYNAMIC_BROKER_CONFIG:log.cleaner.threads=1, {everywhere}"
    wait_until(lambda: synonyms(2) == own, 10, f"broker 2 has its own; it says {synonyms(2)}")
    others = f"log.cleaner.threads=2 synonyms={{{everywhere}"
    wait_until(lambda: synonyms(1) == others, 10, f"broker 1 has the default; it says {synonyms(1)}")
    change(("--entity-name", "2"), "--delete-config", "log.cleaner.threads")
    wait_until(lambda: synonyms(2) == others, 10, "broker 2 has the default")
    change(("--entity-default",), "--delete-config", "log.cleaner.threads")
    wait_until(lambda: synonyms(2) == f"log.cleaner.threads=1 synonyms={{{static}", 10, "nothing dynamic is left")


def test_a_controller_is_added_and_others_removed(cluster: QuorumCluster, quorum_tool: QuorumTool) -> None:
    joining = cluster.nodes[JOINING]
    added = quorum_tool.run("--command-config", str(joining.properties_path), "add-controller")
    assert added.code == 0, added
    assert added.out.startswith(f"Added controller {JOINING} with directory id {joining.stored_directory_id}")
    assert quorum_tool.voters() == [1, 2, 3, JOINING]
    again = quorum_tool.run("--command-config", str(joining.properties_path), "add-controller")
    assert again.code == 1 and "DuplicateVoterException" in again.err
    stranger = quorum_tool.run("remove-controller", "-i", "9", "-d", str(joining.stored_directory_id))
    assert stranger.code == 1 and "VoterNotFoundException" in stranger.err
    leader = cluster.await_leader()
    removed = _removed(quorum_tool, cluster, leader)
    assert removed.code == 0, removed
    wait_until(lambda: cluster.leader() not in (-1, leader), 15, "another leader than the one that was removed")
    wait_until(lambda: quorum_tool.voters() == sorted({1, 2, 3, JOINING} - {leader}), 10, "the smaller quorum")
    # The one that was removed follows as an observer, and comes back.
    wait_until(lambda: _observes(cluster, leader), 15, "the removed controller follows")
    node = cluster.nodes[leader]
    back = quorum_tool.run("--command-config", str(node.properties_path), "add-controller")
    assert back.code == 0, back
    assert quorum_tool.voters() == [1, 2, 3, JOINING]


def test_a_stopped_broker_is_unregistered_and_registers_again(cluster: QuorumCluster, stock_tools: StockTools) -> None:
    gone = next(node_id for node_id in (1, 2, 3) if node_id != cluster.await_leader())
    left = [node_id for node_id in (1, 2, 3) if node_id != gone]
    assert cluster.nodes[gone].terminate() == 0
    at = ("--bootstrap-server", cluster.bootstrap)
    listed = stock_tools.run(CLUSTER, "list-endpoints", *at, "--include-fenced-brokers")
    assert [int(line.split()[0]) for line in listed.lines[1:]] == [1, 2, 3], "stopped, and still registered"
    unregistered = stock_tools.run(CLUSTER, "unregister", *at, "--id", str(gone))
    assert (unregistered.code, unregistered.out) == (0, f"Broker {gone} is no longer registered.\n"), unregistered
    listed = stock_tools.run(CLUSTER, "list-endpoints", *at, "--include-fenced-brokers")
    assert [int(line.split()[0]) for line in listed.lines[1:]] == left
    again = stock_tools.run(CLUSTER, "unregister", *at, "--id", str(gone))
    assert "BrokerIdNotRegisteredException" in again.out + again.err, again
    cluster.start([gone])
    wait_until(lambda: all(cluster.brokers_known_to(one) == [1, 2, 3] for one in left), 20, "it is back")


def _removed(quorum_tool: QuorumTool, cluster: QuorumCluster, node_id: int) -> ToolResult:
    directory_id = str(cluster.nodes[node_id].stored_directory_id)
    return quorum_tool.run("remove-controller", "-i", str(node_id), "-d", directory_id, by="--bootstrap-controller")


def _observes(cluster: QuorumCluster, node_id: int) -> bool:
    quorum = cluster.quorum()
    if quorum is None:
        return False
    ends = {observer.replica_id: observer.log_end_offset for observer in quorum.observers}
    return ends.get(node_id, -1) >= quorum.high_watermark
