"""Syncs that fail under a running broker: what is not stored is not acknowledged, and the directory goes offline."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaStorageError
from py4j.java_gateway import JavaGateway
from support.broker_process import BrokerProcess
from support.data_directory import DataDirectoryReader
from support.processes import wait_until
from support.tools import StockTools
from support.wire import Wire, batch

from protocol.errors import ErrorCode
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPIC = "synced"
PARTITIONS = 4


class FailingBroker(BrokerProcess):
    """Two log directories, the metadata in the first; `fail` makes the syncs of one of them fail."""

    def __init__(self, directory: Path, failing: str) -> None:
        self.mark = directory / "syncs-fail"
        self.directories = {name: directory / name for name in ("first", "second")}
        self.failing = self.directories[failing]
        super().__init__(
            directory,
            extra={
                "log.dirs": ",".join(map(str, self.directories.values())),
                "metadata.log.dir": str(self.directories["first"]),
                # No records by the clock: the tests decide who meets the failing disk first.
                "metadata.max.idle.interval.ms": "0",
            },
            program=("support.failing_disk", str(self.mark)),
            data_dir=self.directories["first"],
        )

    def fail(self) -> None:
        self.mark.write_text(f"sync {self.failing}\n")

    def partitions_in(self, name: str) -> list[int]:
        return [index for index in range(PARTITIONS) if (self.directories[name] / f"{TOPIC}-{index}").exists()]


def create_topic(broker: BrokerProcess) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    every_record = {"flush.messages": "1"}
    admin.create_topics({TOPIC: {"num_partitions": PARTITIONS, "configs": every_record}}, wait_for_metadata=True)
    admin.close()


def values(broker: BrokerProcess, partition: int) -> list[bytes]:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    where = TopicPartition(TOPIC, partition)
    consumer.assign([where])
    end = consumer.end_offsets([where])[where]
    found: list[bytes] = []
    while consumer.position(where) < end:
        found += [record.value for records in consumer.poll(timeout_ms=1000).values() for record in records]
    consumer.close()
    return found


def test_a_directory_whose_syncs_fail_goes_offline_and_the_other_serves(
    tmp_path: Path, jvm: JavaGateway, stock_tools: StockTools
) -> None:
    broker = FailingBroker(tmp_path, failing="second")
    try:
        broker.start()
        create_topic(broker)
        lost, kept = broker.partitions_in("second"), broker.partitions_in("first")
        assert len(lost) == len(kept) == PARTITIONS // 2
        producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap, acks="all", retries=0, enable_idempotence=False, max_block_ms=5000
        )
        for partition in range(PARTITIONS):
            producer.send(TOPIC, b"stored", partition=partition).get(20)
        broker.fail()
        with pytest.raises(KafkaStorageError):
            producer.send(TOPIC, b"not acknowledged", partition=lost[0]).get(20)
        for partition in kept:
            producer.send(TOPIC, b"still served", partition=partition).get(20)
            assert values(broker, partition) == [b"stored", b"still served"]
        producer.close()
        assert f"Log directory {broker.directories['second']} goes offline" in broker.log_text

        broker.mark.unlink()  # the disk was replaced, or its cable
        broker.kill()
        broker.start()
        for partition in range(PARTITIONS):
            found = values(broker, partition)
            assert found[0] == b"stored"
            assert found[1:] in ([b"still served"], [], [b"not acknowledged"])
        broker.stop()
        assert "Traceback" not in broker.log_text
        for directory in broker.directories.values():
            DataDirectoryReader(stock_tools, jvm, directory).read_all()
    finally:
        broker.close()


def test_a_node_that_cannot_store_its_metadata_stops(tmp_path: Path) -> None:
    """As Apache Kafka does. The producer still hears why; nothing that was acknowledged is gone afterwards.

    The answer and the end of the connection come together, where kafka-python looks at the end first: a plain socket
    reads what was sent.
    """
    broker = FailingBroker(tmp_path, failing="first")
    try:
        broker.start()
        create_topic(broker)
        partition = broker.partitions_in("first")[0]
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all", retries=0, enable_idempotence=False)
        producer.send(TOPIC, b"stored", partition=partition).get(20)
        broker.fail()
        data = PartitionProduceData(index=partition, records=bytes(batch(b"not acknowledged")))
        request = ProduceRequest(
            acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])]
        )
        with Wire(broker.port) as wire:
            answer = wire.ask(request, 12)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        producer.close(timeout=1)
        process = broker.process
        assert process is not None
        wait_until(lambda: process.poll() is not None, 20, "the node stops by itself")
        assert process.returncode == 1
        assert "stopping: the metadata log's directory" in broker.log_text
        assert "Traceback" not in broker.log_text

        broker.process = None
        broker.mark.unlink()
        broker.start()
        assert values(broker, partition)[0] == b"stored"
        broker.stop()
    finally:
        broker.close()
