"""A broker with 4,000 partitions: creating them, memory, restarts, Metadata, and a consumer of them all.

Each round starts with an empty directory and a new process. "Created" and "restarted" mean that every partition
tells its end offset: an open port, or a named leader, proves nothing about the logs behind it.
"""

from __future__ import annotations

import statistics
import time

from support.wire import Wire

from bench.lab import Broken, Lab, Side
from bench.model import Case, Metric
from bench.raw import PRODUCE_VERSION, make_batch
from bench.servers import Barnabas, Kafka
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

PARTITIONS = 4000
TOPIC = "many"
PER_REQUEST = 500  # partitions of one produce request
LIMIT_S = 300
RETRY_S = 0.02


def run(lab: Lab, side: Side) -> dict[str, float]:
    server = lab.new_server(side.name)
    try:
        return _measure(lab, Side(side.name, server), server)
    finally:
        server.close()


def _measure(lab: Lab, side: Side, server: Barnabas | Kafka) -> dict[str, float]:
    server.start()
    begin = time.perf_counter()
    side.create_topic(TOPIC, PARTITIONS, timeout_s=LIMIT_S)
    _await_records(side, 0)
    created = time.perf_counter() - begin
    records = _fill(side)
    metadata_ms = statistics.median(_metadata_ms(side) for _ in range(5))
    read = lab.java.read(side.bootstrap, TOPIC, PARTITIONS, records)
    resident = side.resident_mb()
    server.stop()
    clean = _restart_s(side, server, records)
    records += _fill(side)
    server.kill()
    after_kill = _restart_s(side, server, records)
    server.kill()
    return {
        "create": created,
        "Metadata for all": metadata_ms,
        "consumer of all": read.seconds,
        "memory": resident,
        "clean restart": clean,
        "restart after kill -9": after_kill,
    }


def _fill(side: Side) -> int:
    """A batch into every partition, so that there is something to recover and to read."""
    batch = make_batch(4096)
    with Wire(side.port) as wire:
        wire.socket.settimeout(LIMIT_S)
        for first in range(0, PARTITIONS, PER_REQUEST):
            parts = [
                PartitionProduceData(index=index, records=batch.data) for index in range(first, first + PER_REQUEST)
            ]
            topic = TopicProduceData(name=TOPIC, partition_data=parts)
            answer = wire.ask(ProduceRequest(acks=1, timeout_ms=60_000, topic_data=[topic]), PRODUCE_VERSION)
            failed = [part for part in answer.responses[0].partition_responses if part.error_code != 0]
            if failed:
                raise Broken(f"{side.name}: produce to partition {failed[0].index}: error {failed[0].error_code}")
    return batch.records * PARTITIONS


def _metadata_ms(side: Side) -> float:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
    with Wire(side.port) as wire:
        begin = time.perf_counter()
        wire.send_request(request, 12)
        size = int.from_bytes(wire.socket.recv(4), "big")
        while size > 0:
            size -= len(wire.socket.recv(min(size, 1 << 20)))
        return (time.perf_counter() - begin) * 1000


def _restart_s(side: Side, server: Barnabas | Kafka, records: int) -> float:
    begin = time.perf_counter()
    server.launch()
    _await_records(side, records)
    return time.perf_counter() - begin


def _await_records(side: Side, records: int) -> None:
    """Apache Kafka names a partition's leader before the log is there; an end offset needs the log."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            if side.end_offsets(TOPIC, PARTITIONS) == records:
                return
        except (OSError, Broken):
            pass
        if time.monotonic() > deadline:
            raise Broken(f"{side.name}: not all partitions serve {records} records within {LIMIT_S} s")
        time.sleep(RETRY_S)


CASES: tuple[Case, ...] = (
    Case(
        "4,000 partitions",
        (
            Metric("create", "s", "lower"),
            Metric("Metadata for all", "ms", "lower"),
            Metric("consumer of all", "s", "lower"),
            Metric("memory", "MB", "lower"),
            Metric("clean restart", "s", "lower"),
            Metric("restart after kill -9", "s", "lower", 0.5),
        ),
        run,
        quick=False,
        warm_ups=0,
    ),
)
