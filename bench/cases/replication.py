"""Three brokers, three replicas, acks=all: what replication costs, and how long a partition is without its leader.

Both clusters run at Apache Kafka's defaults, with `min.insync.replicas=2`: a record is acknowledged when all three have
it, and while one is dead when two have. The brokers of the side that is not being measured are idle, but they are
there: six brokers and the clients share the machine.
"""

from __future__ import annotations

import time

from support.processes import wait_until
from support.quorum_cluster import QuorumCluster
from support.wire import OneRecord, Wire

from bench.cases import latency
from bench.cases.produce import IDEMPOTENT, Load
from bench.clusters import CLUSTERS, LIMIT_S, ClusterSide, all_know_all, finish, start
from bench.lab import Broken, Lab, Side
from bench.model import Case, Metric
from protocol.errors import ErrorCode
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import build_batch

REPLICAS = 3
RETRY_S = 0.005  # the resolution of an outage
ACK_TIMEOUT_S = 2  # of one attempt: a leader that was killed in the middle of it does not answer
LOAD = Load(400_000, 100_000, 1000, partitions=6, replicas=REPLICAS, settings=IDEMPOTENT)


def prepare(lab: Lab, side: Side) -> None:
    start(lab, side, {"min.insync.replicas": "2"})


def _side(side: Side) -> ClusterSide:
    return ClusterSide(side.name, CLUSTERS[side.name])


def run_load(lab: Lab, side: Side) -> dict[str, float]:
    return LOAD.run(lab, _side(side))


def run_latency(lab: Lab, side: Side) -> dict[str, float]:
    return latency.run(lab, _side(side), REPLICAS)


# Failover


def run_failover(lab: Lab, side: Side) -> dict[str, float]:
    """A leader that is nothing else, and one that is the active controller as well."""
    found = _side(side)
    return {
        "kill -9 to the next ack": _outage_s(lab, found, is_controller=False),
        "... of leader and controller": _outage_s(lab, found, is_controller=True),
    }


def _outage_s(lab: Lab, side: ClusterSide, *, is_controller: bool) -> float:
    """From the death of the leader of a partition to the next record that the partition acknowledges."""
    cluster = side.cluster
    topic = lab.fresh_name("failover")
    side.create_topic(topic, len(cluster.nodes), REPLICAS)
    wait_until(lambda: side.is_in_sync(topic), LIMIT_S, "all replicas in sync")
    controller = cluster.await_leader(LIMIT_S)
    leaders = {part.leader_id: part.partition_index for part in side.partitions(topic)}
    victim = next(leader for leader in leaders if (leader == controller) == is_controller)
    partition = leaders[victim]
    if not _is_acknowledged(cluster.nodes[victim].port, topic, partition):
        raise Broken(f"{side.name}: {topic}-{partition} does not take records")
    survivor = next(node for node in cluster.nodes.values() if node.node_id != victim)
    begin = time.perf_counter()
    cluster.nodes[victim].kill()
    while True:
        leader = side.leader_of(survivor.port, topic, partition)
        if leader not in (-1, victim) and _is_acknowledged(cluster.nodes[leader].port, topic, partition):
            break
        if time.perf_counter() - begin > LIMIT_S:
            raise Broken(f"{side.name}: nothing is acknowledged {LIMIT_S} s after the leader's death")
        time.sleep(RETRY_S)
    seconds = time.perf_counter() - begin
    _revive(side, cluster, victim, topic)
    return seconds


def _is_acknowledged(port: int, topic: str, partition: int) -> bool:
    records = build_batch([OneRecord(timestamp=time.time_ns() // 1_000_000)])
    data = PartitionProduceData(index=partition, records=bytes(records))
    request = ProduceRequest(
        acks=-1, timeout_ms=ACK_TIMEOUT_S * 1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    try:
        with Wire(port, timeout_s=ACK_TIMEOUT_S) as wire:
            code = wire.ask(request, 9).responses[0].partition_responses[0].error_code
    except OSError:
        return False
    return bool(code == ErrorCode.NONE)


def _revive(side: ClusterSide, cluster: QuorumCluster, node_id: int, topic: str) -> None:
    """Everything is as it was, so the next death is like this one."""
    cluster.start([node_id])
    wait_until(lambda: all_know_all(cluster), LIMIT_S, f"broker {node_id} is back")
    wait_until(lambda: side.is_in_sync(topic), LIMIT_S, "all replicas in sync again")
    side.delete_topic(topic)


CASES: tuple[Case, ...] = (
    Case(
        "three replicas, acks=all",
        (Metric("throughput", "MB/s", "higher", 1.5), Metric("broker CPU", "s/GB", "lower", 0.5)),
        run_load,
        prepare,
        finish,
        quick=False,
    ),
    Case(
        "three replicas, end to end, 1,000 msg/s",
        (
            Metric("p50", "ms", "lower"),
            Metric("p99", "ms", "lower", 1.0),
            Metric("p99.9", "ms", "lower"),
            Metric("broker CPU", "% of a core", "lower"),
        ),
        run_latency,
        prepare,
        finish,
        quick=False,
    ),
    Case(
        "three replicas, failover",
        (
            Metric("kill -9 to the next ack", "s", "lower", 1.0),
            Metric("... of leader and controller", "s", "lower", 1.0),
        ),
        run_failover,
        prepare,
        finish,
        quick=False,
        warm_ups=0,
    ),
)
