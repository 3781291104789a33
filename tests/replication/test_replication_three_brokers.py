"""The three-broker walk-through: three properties files, three processes, a topic with six partitions and replicas."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import NotEnoughReplicasAfterAppendError, NotEnoughReplicasError
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError
from support.java_clients import JavaProducer
from support.processes import wait_until
from support.quorum_cluster import QuorumCluster, separate
from support.tools import CONFIGS, LEADER_ELECTION, REASSIGN, TOPICS, StockTools
from support.wire import Wire, batch

from protocol.errors import ErrorCode
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPIC = "walk"
PARTITIONS = 6
SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "2000",
    "unclean.leader.election.interval.ms": "500",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QuorumCluster]:
    """Combined nodes would lose their quorum with two of three gone: the controllers are processes of their own."""
    directory = tmp_path_factory.mktemp("three")
    made = QuorumCluster(directory, separate(controllers=1, brokers=3), extra=SETTINGS)
    try:
        made.start()
        yield made
    finally:
        made.close()


def partitions(cluster: QuorumCluster, topic: str = TOPIC) -> dict[int, tuple[int, list[int]]]:
    """(leader, ISR) by partition, as the first running broker tells it."""
    return {index: (one.leader, one.isr) for index, one in cluster.partitions(topic).items()}


def await_isr(cluster: QuorumCluster, *members: int, topic: str = TOPIC) -> None:
    cluster.await_isr(topic, *members)


def produce(bootstrap: str, values: list[str], topic: str = TOPIC) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", retries=20, retry_backoff_ms=100)
    sent = [producer.send(topic, value.encode(), partition=at % PARTITIONS) for at, value in enumerate(values)]
    for one in sent:
        one.get(30)
    producer.close()


def consumed(bootstrap: str, count: int, topic: str = TOPIC) -> list[str]:
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest", consumer_timeout_ms=8_000
    )
    values = []
    for record in consumer:
        values.append(record.value.decode())
        if len(values) == count:
            break
    consumer.close()
    return sorted(values)


def end_offset(cluster: QuorumCluster, topic: str) -> int:
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap)
    (end,) = consumer.end_offsets([TopicPartition(topic, 0)]).values()
    consumer.close()
    return int(end)


def produce_once(cluster: QuorumCluster, partition: int) -> ErrorCode:
    """One request with acks=all to the leader, without a client's retries."""
    leader, _ = partitions(cluster)[partition]
    data = PartitionProduceData(index=partition, records=bytes(batch(b"one")))
    request = ProduceRequest(
        acks=-1, timeout_ms=1_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])]
    )
    with Wire(cluster.nodes[leader].port) as wire:
        answer = wire.ask(request, 9)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def test_walk_through(cluster: QuorumCluster, stock_tools: StockTools, jvm: JavaGateway) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3, topic_configs={"min.insync.replicas": "2"})])
    admin.close()
    await_isr(cluster, 1, 2, 3)
    described = stock_tools.run(TOPICS, "--bootstrap-server", cluster.bootstrap, "--describe", "--topic", TOPIC).out
    lines = [line for line in described.splitlines() if "Partition:" in line]
    assert len(lines) == PARTITIONS
    for line in lines:
        told = dict(re.findall(r"(\w+): ([\d,]+)", line))
        assert sorted(told["Replicas"].split(",")) == sorted(told["Isr"].split(",")) == ["1", "2", "3"], line
        assert told["Leader"] == told["Replicas"][0], line
    leaders = [leader for leader, _ in partitions(cluster).values()]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3], described

    everywhere = [f"all-{at}" for at in range(120)]
    produce(cluster.bootstrap, everywhere)
    through_one = [f"one-{at}" for at in range(120)]
    produce(cluster.nodes[2].bootstrap, through_one)
    assert consumed(cluster.bootstrap, 240) == sorted(everywhere + through_one)

    cluster.nodes[1].kill()
    await_isr(cluster, 2, 3)
    with_two = [f"two-{at}" for at in range(60)]
    produce(cluster.nodes[2].bootstrap, with_two)

    cluster.nodes[2].kill()
    await_isr(cluster, 3)
    for partition in range(PARTITIONS):
        assert produce_once(cluster, partition) is ErrorCode.NOT_ENOUGH_REPLICAS
    producer = KafkaProducer(bootstrap_servers=cluster.nodes[3].bootstrap, acks="all", retries=0)
    with pytest.raises((NotEnoughReplicasError, NotEnoughReplicasAfterAppendError)):
        producer.send(TOPIC, b"refused", partition=0).get(20)
    producer.close()
    java = JavaProducer(jvm, cluster.nodes[3].bootstrap, retries="0", enable_idempotence="false")
    with pytest.raises(Py4JJavaError, match=r"NotEnoughReplicasException: .*min\.isr requirement of 2"):
        java.send(TOPIC, 0, "refused").get()
    java.close()
    # With retries, which are the default, neither client tells its application anything: they wait.
    patient_java = JavaProducer(jvm, cluster.nodes[3].bootstrap)
    patient_python = KafkaProducer(bootstrap_servers=cluster.nodes[3].bootstrap, acks="all", retry_backoff_ms=100)
    waiting_java = patient_java.send(TOPIC, 0, "java waited")
    waiting_python = patient_python.send(TOPIC, b"python waited", partition=1)
    # What is committed can still be read. The last leader may have known of a few more commits than this one does.
    readable = consumed(cluster.nodes[3].bootstrap, 240)
    assert len(set(readable)) == 240 and set(readable) <= {*everywhere, *through_one, *with_two}
    assert not waiting_java.isDone() and not waiting_python.is_done

    cluster.start([1])
    waiting_java.get()
    waiting_python.get(30)
    patient_java.close()
    patient_python.close()
    waited = ["java waited", "python waited"]
    await_isr(cluster, 1, 3)
    again = [f"again-{at}" for at in range(60)]
    produce(cluster.nodes[3].bootstrap, again)
    cluster.start([2])
    await_isr(cluster, 1, 2, 3)
    everything = sorted(everywhere + through_one + with_two + waited + again)
    assert consumed(cluster.nodes[2].bootstrap, len(everything)) == everything


def test_preferred_leaders_on_request(cluster: QuorumCluster, stock_tools: StockTools) -> None:
    result = stock_tools.run(
        LEADER_ELECTION,
        *("--bootstrap-server", cluster.bootstrap, "--election-type", "preferred", "--all-topic-partitions"),
    )
    assert result.code == 0, result.out + result.err
    # The controller has decided; a broker hears of it a moment later.
    wait_until(
        lambda: sorted(leader for leader, _ in partitions(cluster).values()) == [1, 1, 2, 2, 3, 3],
        10,
        "every broker leads what it is the first replica of",
    )


def test_a_stopping_broker_hands_over_first(cluster: QuorumCluster) -> None:
    """A producer without retries hears no error: each request meets a leader, or one that says who is."""
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all", retries=5, retry_backoff_ms=50)
    for at in range(60):
        producer.send(TOPIC, b"before", partition=at % PARTITIONS).get(10)
    assert cluster.nodes[3].terminate() == 0
    wait_until(
        lambda: all(leader in (1, 2) for leader, _ in partitions(cluster).values()), 5, "the others lead what it led"
    )
    for at in range(60):
        producer.send(TOPIC, b"after", partition=at % PARTITIONS).get(10)
    producer.close()
    cluster.start([3])
    await_isr(cluster, 1, 2, 3)


def test_replicas_move(cluster: QuorumCluster, stock_tools: StockTools, tmp_path: Path) -> None:
    """kafka-reassign-partitions: execute, verify; the data comes along, and the old replica is removed."""
    topic = "moving"
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    admin.create_topics([NewTopic(topic, replica_assignments={at: [1, 2] for at in range(PARTITIONS)})])
    admin.close()
    await_isr(cluster, 1, 2, topic=topic)
    values = [f"move-{at}" for at in range(120)]
    produce(cluster.bootstrap, values, topic)
    plan = {
        "version": 1,
        "partitions": [{"topic": topic, "partition": at, "replicas": [3, 2]} for at in range(PARTITIONS)],
    }
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    common = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(path))
    executed = stock_tools.run(REASSIGN, *common, "--execute")
    assert executed.code == 0, executed.out + executed.err
    await_isr(cluster, 2, 3, topic=topic)
    verified = stock_tools.run(REASSIGN, *common, "--verify")
    assert "still in progress" not in verified.out
    assert verified.out.count("is completed") >= PARTITIONS, verified.out
    wait_until(
        lambda: not list(cluster.nodes[1].data_dir.glob(f"{topic}-?")), 10, "the old replicas are gone from broker 1"
    )
    assert consumed(cluster.bootstrap, 120, topic) == sorted(values)


def test_an_unclean_leader_only_where_it_is_allowed(cluster: QuorumCluster, stock_tools: StockTools) -> None:
    """Broker 2 falls behind and the in-sync one dies: nobody leads, unless the topic prefers that to waiting, be it
    from now on, or unless somebody asks for it.
    """
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    topics = {"waits": "false", "goes-on": "true", "changes-its-mind": "false", "is-asked": "false"}
    for name, allowed in topics.items():
        config = {"unclean.leader.election.enable": allowed, "min.insync.replicas": "1"}
        admin.create_topics([NewTopic(name, replica_assignments={0: [1, 2]}, topic_configs=config)])
        await_isr(cluster, 1, 2, topic=name)
    admin.close()
    cluster.nodes[2].kill()
    for name in topics:
        await_isr(cluster, 1, topic=name)
        producer = KafkaProducer(bootstrap_servers=cluster.nodes[1].bootstrap, acks="all")
        producer.send(name, b"only on 1", partition=0).get(20)
        producer.close()
    cluster.nodes[1].kill()
    cluster.start([2])

    def await_leader_of(topic: str) -> None:
        wait_until(lambda: partitions(cluster, topic)[0][0] == 2, 20, f"an unclean leader of {topic}")

    await_leader_of("goes-on")
    for name in ("waits", "changes-its-mind", "is-asked"):
        assert partitions(cluster, name)[0][0] == -1
    common = ("--bootstrap-server", cluster.bootstrap)
    changed = ("--entity-type", "topics", "--entity-name", "changes-its-mind", "--alter")
    set_it = stock_tools.run(CONFIGS, *common, *changed, "--add-config", "unclean.leader.election.enable=true")
    assert set_it.code == 0, set_it.out + set_it.err
    await_leader_of("changes-its-mind")
    asked = ("--election-type", "unclean", "--topic", "is-asked", "--partition", "0")
    elected = stock_tools.run(LEADER_ELECTION, *common, *asked)
    assert "Successfully completed leader election (UNCLEAN)" in elected.out, elected.out + elected.err
    await_leader_of("is-asked")
    assert partitions(cluster, "waits")[0][0] == -1
    cluster.start([1])
    wait_until(lambda: partitions(cluster, "waits")[0][0] == 1, 20, "the in-sync replica leads again")
    assert consumed(cluster.bootstrap, 1, "waits") == ["only on 1"]
    for name in ("goes-on", "changes-its-mind", "is-asked"):  # that is the price
        wait_until(lambda n=name: partitions(cluster, n)[0][1] == [1, 2], 20, "both follow the unclean leader")  # type: ignore[misc]
        assert end_offset(cluster, name) == 0
