"""One quorum of Barnabas and Apache Kafka: votes, fetches and records go both ways, and the metadata is the same.

Two of our controllers and one of Apache Kafka's, a broker of each; then the same with the numbers reversed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.change_stream import settings_known_to, topics_known_to
from support.processes import wait_until
from support.quorum_cluster import KAFKA, OURS, NodeSpec, QuorumCluster
from support.tools import CONSOLE_CONSUMER, CONSOLE_PRODUCER, StockTools
from support.wire import ask

from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

pytestmark = [pytest.mark.stock, pytest.mark.slow]

CONTROLLERS = (101, 102, 103)
BROKERS = (1, 2)


def nodes(ours: int) -> dict[int, NodeSpec]:
    """So many of the three controllers are ours; broker 1 is ours and broker 2 is Apache Kafka's."""
    return {
        **{
            node_id: NodeSpec("controller", OURS if position < ours else KAFKA)
            for position, node_id in enumerate(CONTROLLERS)
        },
        1: NodeSpec("broker", OURS),
        2: NodeSpec("broker", KAFKA),
    }


@pytest.fixture(params=[2, 1], ids=["two of ours", "one of ours"])
def cluster(request: pytest.FixtureRequest, stock_tools: StockTools, tmp_path: Path) -> Iterator[QuorumCluster]:
    made = QuorumCluster(tmp_path, nodes(request.param), tools=stock_tools)
    try:
        # One of ours stands before there is a second, so it is mostly the first to lead; on a busy machine the other
        # may be quicker to ask, and then it is asked to stand back.
        made.start(CONTROLLERS[:1])
        made.start(CONTROLLERS[1:2])
        for _ in range(5):
            if made.await_leader(30) == CONTROLLERS[0] or request.param > 1:
                break
            made.nodes[CONTROLLERS[1]].kill()
            made.start(CONTROLLERS[1:2])
        assert made.await_leader(30) == CONTROLLERS[0] or request.param > 1
        made.start([CONTROLLERS[2], *BROKERS])
        yield made
    finally:
        made.close()


def create(cluster: QuorumCluster, broker: int, name: str, **configs: str) -> None:
    """On both brokers: partition i is with broker i + 1."""
    topic = CreatableTopic(
        name=name,
        num_partitions=2,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
    response = ask(cluster.nodes[broker].port, CreateTopicsRequest(topics=[topic], timeout_ms=20_000), timeout_s=40)
    assert response.topics[0].error_code == 0, response.topics[0]


def test_leadership_moves_between_the_two_and_the_metadata_stays_the_same(
    cluster: QuorumCluster, stock_tools: StockTools, tmp_path: Path
) -> None:
    for broker in BROKERS:
        wait_until(lambda b=broker: cluster.brokers_known_to(b) == [1, 2], 30, "both brokers")  # type: ignore[misc]
        create(cluster, broker, f"first-{broker}", retention_ms=f"10000{broker}")
    led = [cluster.await_leader()]
    for step in range(6):
        # The leader stops; in the end each kind of node has led.
        leader = led[-1]
        cluster.nodes[leader].kill()
        led.append(cluster.await_leader(other_than=leader, timeout_s=30))
        create(cluster, BROKERS[step % 2], f"step-{step}", retention_ms=str(777_000 + step))
        cluster.start([leader])
        if {cluster.nodes[one].spec.software for one in led} == {OURS, KAFKA} and step >= 1:
            break
    print(f"\nled by {[(one, cluster.nodes[one].spec.software) for one in led]}")
    assert {cluster.nodes[one].spec.software for one in led} == {OURS, KAFKA}
    expected = {f"first-{broker}": f"10000{broker}" for broker in BROKERS}
    expected |= {f"step-{step}": str(777_000 + step) for step in range(len(led) - 1)}
    for broker in BROKERS:
        port = cluster.nodes[broker].port
        wait_until(lambda port=port: set(expected) <= topics_known_to(port), 20, "all topics")  # type: ignore[misc]
        assert settings_known_to(port, sorted(expected)) == expected
    _produce_and_consume(cluster, stock_tools)
    _check_logs_agree(cluster)


def _produce_and_consume(cluster: QuorumCluster, tools: StockTools) -> None:
    """Through the partitions of both brokers, with one client."""
    values = [f"value {number}" for number in range(20)]
    sent = tools.run(
        CONSOLE_PRODUCER,
        "--bootstrap-server",
        cluster.bootstrap,
        "--topic",
        "first-1",
        "--command-property",
        "partitioner.ignore.keys=true",
        "--command-property",
        "batch.size=1",
        stdin="\n".join(values) + "\n",
    )
    assert sent.code == 0, sent
    read = tools.run(
        CONSOLE_CONSUMER,
        *("--bootstrap-server", cluster.bootstrap, "--topic", "first-1", "--from-beginning"),
        *("--max-messages", str(len(values)), "--timeout-ms", "20000"),
    )
    assert sorted(read.lines) == sorted(values), read


def _check_logs_agree(cluster: QuorumCluster) -> None:
    """Byte for byte, as far as all of them have it: a follower stores what its leader wrote."""
    for node in cluster.running():
        node.close()
    name = "__cluster_metadata-0/00000000000000000000.log"
    logs = [(cluster.nodes[one].data_dir / name).read_bytes().rstrip(b"\0") for one in CONTROLLERS]
    shortest = min(map(len, logs))
    assert shortest > 2_000
    assert len({log[:shortest] for log in logs}) == 1
