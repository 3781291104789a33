"""Log directories that fail or hold what does not belong to them: the other partitions are served, no data vanishes."""

from __future__ import annotations

import shutil
from pathlib import Path

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from support.broker_process import BrokerProcess
from support.wire import Wire, batch

from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPIC = "spread"
PARTITIONS = 6
LATEST = -1


def create_topic(broker: BrokerProcess, name: str, partitions: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([NewTopic(name, num_partitions=partitions, replication_factor=1)])
    admin.close()


def write_one_to_each(broker: BrokerProcess, topic: str, partitions: int) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all")
    for partition in range(partitions):
        producer.send(topic, str(partition).encode(), partition=partition).get(timeout=10)
    producer.close()


def read_all(broker: BrokerProcess, topic: str, partition: int) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, consumer_timeout_ms=10_000)
    at = TopicPartition(topic, partition)
    consumer.assign([at])
    consumer.seek_to_beginning(at)
    end = consumer.end_offsets([at])[at]
    values: list[bytes] = []
    while len(values) < end:
        values.append(next(consumer).value)
    consumer.close()
    return values


def latest_offset_error(broker: BrokerProcess, topic: str, partition: int) -> ErrorCode:
    asked = ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=LATEST)])
    with Wire(broker.port) as wire:
        answer = wire.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), 7)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def produce_error(broker: BrokerProcess, topic: str, partition: int) -> ErrorCode:
    """Over the wire: a real client would wait for a leader, which the partition has not got."""
    data = PartitionProduceData(index=partition, records=batch(b"lost?"))
    with Wire(broker.port) as wire:
        request = ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
        )
        answer = wire.ask(request, 12)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def held_in(directory: Path, topic: str) -> set[int]:
    return {int(path.name.rpartition("-")[2]) for path in directory.glob(f"{topic}-[0-9]*") if path.name[-1].isdigit()}


def test_one_of_two_directories_is_lost_and_found(tmp_path: Path) -> None:
    first, second = tmp_path / "disk1", tmp_path / "disk2"
    broker = BrokerProcess(
        tmp_path / "node", extra={"log.dirs": f"{first},{second}", "metadata.log.dir": str(first)}, data_dir=first
    )
    try:
        broker.start()
        create_topic(broker, TOPIC, PARTITIONS)
        write_one_to_each(broker, TOPIC, PARTITIONS)
        on_first, on_second = held_in(first, TOPIC), held_in(second, TOPIC)
        assert on_first | on_second == set(range(PARTITIONS))
        assert len(on_first) == len(on_second) == PARTITIONS // 2
        broker.stop()

        # The second disk is not there: a file lies where it was.
        second.rename(tmp_path / "unplugged")
        second.write_bytes(b"")
        broker.start()
        for partition in on_first:
            assert read_all(broker, TOPIC, partition) == [str(partition).encode()]
        for partition in on_second:
            assert latest_offset_error(broker, TOPIC, partition) is ErrorCode.KAFKA_STORAGE_ERROR
            assert produce_error(broker, TOPIC, partition) is ErrorCode.KAFKA_STORAGE_ERROR
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all")
        producer.send(TOPIC, b"kept", partition=min(on_first)).get(timeout=10)
        producer.close()
        assert held_in(first, TOPIC) == on_first, "a replica came back empty on another disk"
        with Wire(broker.port) as wire:
            by_path = {one.log_dir: one.error_code for one in wire.ask(DescribeLogDirsRequest(topics=None), 4).results}
        assert by_path == {str(first): ErrorCode.NONE, str(second): ErrorCode.KAFKA_STORAGE_ERROR}
        broker.stop()

        second.unlink()
        (tmp_path / "unplugged").rename(second)
        broker.start()
        for partition in on_second:
            assert read_all(broker, TOPIC, partition) == [str(partition).encode()]
        broker.stop()
        assert "Traceback" not in broker.log_text
    finally:
        broker.close()


def test_logs_of_no_known_partition_are_set_aside(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)
    data = broker.data_dir
    try:
        broker.start()
        create_topic(broker, "kept", 1)
        create_topic(broker, "reborn", 1)
        write_one_to_each(broker, "kept", 1)
        write_one_to_each(broker, "reborn", 1)
        broker.stop()
        shutil.copytree(data / "kept-0", data / "unheard-of-0")  # of a topic that is not in the metadata
        shutil.copytree(data / "kept-0", data / "kept-7")  # of a partition that is not
        shutil.copy(data / "kept-0" / "partition.metadata", data / "reborn-0")  # of another topic of that name
        (data / "kept-0" / "partition.metadata").unlink()

        broker.start()
        assert read_all(broker, "kept", 0) == [b"0"]
        assert read_all(broker, "reborn", 0) == []
        strays = {path.name.rpartition(".")[0] for path in data.glob("*-stray")}
        assert strays == {"unheard-of-0", "kept-7", "reborn-0"}
        assert (data / "kept-0" / "partition.metadata").exists()
        create_topic(broker, "unheard-of", 1)
        assert read_all(broker, "unheard-of", 0) == []
        broker.restart()
        assert len(list(data.glob("*-stray"))) == len(strays)
        broker.stop()
        assert "Traceback" not in broker.log_text
    finally:
        broker.close()
