"""The way of a fetch, from a real client's request to the socket: record bytes are never read into Python."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from support.processes import combined_node_properties, free_ports, write_properties

from broker.server import Broker
from config.broker import BrokerConfig
from protocol.records import HEADER_SIZE

RECORDS = 300
VALUE = os.urandom(20_000)
WHERE = TopicPartition("zero-copy", 0)


def produce(bootstrap: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", batch_size=100_000, linger_ms=20)
    for _ in range(RECORDS):
        producer.send(WHERE.topic, VALUE, partition=WHERE.partition)
    producer.flush(30)
    producer.close()


def consume(bootstrap: str) -> int:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=20_000)
    consumer.assign([WHERE])
    values = [next(consumer).value for _ in range(RECORDS)]
    consumer.close()
    assert set(values) == {VALUE}
    return sum(map(len, values))


class ReadsOfLogs:
    """Every read of a segment file by this process: os.pread is the only one that the storage uses on them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lengths: list[int] = []
        self._pread = os.pread
        monkeypatch.setattr(os, "pread", self.pread)

    def pread(self, fd: int, length: int, position: int) -> bytes:
        data = self._pread(fd, length, position)
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".log"):
            self.lengths.append(len(data))
        return data


async def test_fetched_records_go_by_sendfile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port, controller_port = free_ports(2)
    path = tmp_path / "server.properties"
    write_properties(path, combined_node_properties(tmp_path / "data", port, controller_port))
    broker = Broker(BrokerConfig.load(str(path), []))
    await broker.start()
    try:
        (server,) = (one for one in broker._broker_servers if any(port == listener.port for listener in one.bound))
        bootstrap = f"127.0.0.1:{port}"
        await asyncio.to_thread(produce, bootstrap)
        sent_before = server.counters.sent_bytes
        reads = ReadsOfLogs(monkeypatch)
        size = await asyncio.to_thread(consume, bootstrap)
    finally:
        await broker.stop()
    counters = server.counters
    assert size == RECORDS * len(VALUE)
    assert counters.sendfile_bytes >= size
    assert counters.pread_bytes == 0
    assert counters.sent_bytes - sent_before - counters.sendfile_bytes < size // 20, "only headers go another way"
    assert reads.lengths, "batches are found by their headers"
    assert max(reads.lengths) <= HEADER_SIZE
