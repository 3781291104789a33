"""Three combined nodes: how long a cluster is without its controller, how fast metadata changes, what metadata costs.

Each side's cluster serves all rounds. The nodes of a side change their metadata only through their quorum: two of three
disks have a change before it is acknowledged. For the cost of metadata there are 10,000 partitions, all of them kept by
the first two nodes; the third is restarted, and has nothing to load but metadata.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

from support.processes import wait_until
from support.quorum_cluster import NodeProcess, QuorumCluster
from support.wire import Wire, ask

from bench.clusters import CLUSTERS, LIMIT_S, all_know_all, finish, start
from bench.lab import Broken, Lab, Side
from bench.machine import resident_mb
from bench.model import Case, Metric
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

KILLS = 2  # of a round; their median counts
TOPICS = 1000
REQUESTS = 100  # one after the other: each waits for its commit
MANY = tuple(f"many-{number}" for number in range(10))
PARTITIONS_PER_TOPIC = 1000
KEEPERS, RESTARTED = (1, 2), 3
RETRY_S = 0.01  # the resolution of the start-up
QUIET_S = 3  # memory is that of a node whose start-up work has died down
SNAPSHOT_EVERY = 200_000  # bytes of records: the metadata of 10,000 partitions is several times that


def prepare(lab: Lab, side: Side) -> None:
    start(lab, side)


# Changes


def run_changes(lab: Lab, side: Side) -> dict[str, float]:
    cluster = CLUSTERS[side.name]
    outages = [_outage_s(lab, cluster) for _ in range(KILLS)]
    port = cluster.nodes[cluster.await_leader()].port
    in_steps = _create_s(lab, port, requests=REQUESTS)
    at_once = _create_s(lab, port, requests=1)
    return {
        "kill -9 to the next change": statistics.median(outages),
        f"{TOPICS:,} topics in {REQUESTS} requests": in_steps,
        f"{TOPICS:,} topics in one request": at_once,
    }


def _outage_s(lab: Lab, cluster: QuorumCluster) -> float:
    """Asks a broker that goes on living; it is the broker's affair to find the next controller."""
    leader = cluster.await_leader(LIMIT_S)
    survivor = next(node for node in cluster.nodes.values() if node.node_id != leader)
    _create(survivor.port, [lab.fresh_name("before")])
    name = lab.fresh_name("after")
    begin = time.perf_counter()
    cluster.nodes[leader].kill()
    while True:
        try:
            _create(survivor.port, [name])
            break
        except (OSError, Broken) as failure:
            if time.perf_counter() - begin > LIMIT_S:
                raise Broken(f"no change within {LIMIT_S} s after the controller's death: {failure}") from None
    seconds = time.perf_counter() - begin
    cluster.start([leader])
    wait_until(lambda: _follows(cluster, leader), LIMIT_S, f"node {leader} is back")
    return seconds


def _follows(cluster: QuorumCluster, node_id: int) -> bool:
    """As voter and as broker: everything is as it was, so the next death is like this one."""
    quorum = cluster.quorum()
    if quorum is None:
        return False
    ends = {voter.replica_id: voter.log_end_offset for voter in quorum.current_voters}
    return ends[node_id] >= quorum.high_watermark and all_know_all(cluster)


def _create_s(lab: Lab, port: int, *, requests: int) -> float:
    """Seconds to create the topics with so many requests, one after the other. They are deleted again, unmeasured."""
    names = [lab.fresh_name("topic") for _ in range(TOPICS)]
    size = TOPICS // requests
    begin = time.perf_counter()
    with Wire(port, timeout_s=LIMIT_S) as wire:
        for first in range(0, TOPICS, size):
            _create_with(wire, [_topic(name) for name in names[first : first + size]])
        seconds = time.perf_counter() - begin
        deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=60_000)
        _raise_for(wire.ask(deletion).responses)
    return seconds


def _topic(name: str) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=1, replication_factor=1)


def _create(port: int, names: list[str]) -> None:
    with Wire(port, timeout_s=LIMIT_S) as wire:
        _create_with(wire, [_topic(name) for name in names])


def _create_with(wire: Wire, topics: list[CreatableTopic]) -> None:
    _raise_for(wire.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000)).topics)


def _raise_for(results: Sequence[Any]) -> None:
    """A first try that timed out may have been committed: that the topic is there is success."""
    for result in results:
        if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise Broken(f"{result.name}: {ErrorCode(result.error_code).name}")


# The weight of metadata


def prepare_many(lab: Lab, side: Side) -> None:
    """Ends when the node that will be restarted has a snapshot with most of the partitions in it."""
    cluster = start(lab, side, {"metadata.log.max.record.bytes.between.snapshots": str(SNAPSHOT_EVERY)})
    with Wire(cluster.nodes[KEEPERS[0]].port, timeout_s=LIMIT_S) as wire:
        for name in MANY:
            assignments = [
                CreatableReplicaAssignment(partition_index=index, broker_ids=[KEEPERS[index % len(KEEPERS)]])
                for index in range(PARTITIONS_PER_TOPIC)
            ]
            topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
            _create_with(wire, [topic])
    node = cluster.nodes[RESTARTED]
    wait_until(lambda: _serves_all(node.port), LIMIT_S, "all partitions in Metadata")
    wait_until(lambda: _snapshot_size(node) > 2 * SNAPSHOT_EVERY, LIMIT_S, "a snapshot of them")


def run_restart(lab: Lab, side: Side) -> dict[str, float]:
    cluster = CLUSTERS[side.name]
    node = cluster.nodes[RESTARTED]
    node.terminate(LIMIT_S)
    cluster.await_leader(LIMIT_S)
    begin = time.perf_counter()
    node.launch()
    while not _serves_all(node.port):
        if time.perf_counter() - begin > LIMIT_S:
            raise Broken(f"{node.name}: not all partitions in Metadata within {LIMIT_S} s")
        time.sleep(RETRY_S)
    seconds = time.perf_counter() - begin
    time.sleep(QUIET_S)
    return {"start to Metadata": seconds, "memory": resident_mb(node.pid)}


def _serves_all(port: int) -> bool:
    """The last topic first: a question that costs little while the answer is no."""
    try:
        return all(_leaders(port, topics) == PARTITIONS_PER_TOPIC * len(topics) for topics in (MANY[-1:], MANY))
    except OSError:
        return False


def _leaders(port: int, names: tuple[str, ...]) -> int:
    topics = [MetadataRequestTopic(name=name) for name in names]
    answer = ask(port, MetadataRequest(topics=topics, allow_auto_topic_creation=False), 12)
    return sum(part.leader_id in KEEPERS for topic in answer.topics for part in topic.partitions)


def _snapshot_size(node: NodeProcess) -> int:
    found = sorted((node.data_dir / "__cluster_metadata-0").glob("*.checkpoint"))
    return found[-1].stat().st_size if found else 0


CASES: tuple[Case, ...] = (
    Case(
        "quorum of three",
        (
            Metric("kill -9 to the next change", "s", "lower"),
            Metric(f"{TOPICS:,} topics in {REQUESTS} requests", "s", "lower"),
            Metric(f"{TOPICS:,} topics in one request", "s", "lower"),
        ),
        run_changes,
        prepare,
        finish,
        quick=False,
        warm_ups=0,
    ),
    Case(
        "10,000 partitions",
        (Metric("start to Metadata", "s", "lower"), Metric("memory", "MB", "lower")),
        run_restart,
        prepare_many,
        finish,
        quick=False,
        warm_ups=0,
    ),
)
