"""What a case works with: the sides to measure, topics on them, and the Java clients.

A side is a running broker. Cases that start brokers of their own (start-up, thousands of partitions) ask the lab for
new ones; it ends whatever is still running when the benchmark does.
"""

from __future__ import annotations

import itertools
import mmap
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.processes import ServerProcess
from support.wire import Wire

from bench.floor import FloorProcess
from bench.java_clients import JavaClients
from bench.machine import cpu_seconds, resident_mb
from bench.model import SideName
from bench.servers import Barnabas, Kafka
from protocol.errors import ErrorCode
from protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.uuids import Uuid

LATEST = -1
SETTLE_S = 60
POLL_S = 0.02
_CHUNK = 256 << 20


class Broken(RuntimeError):
    """A broker did not do what the case asked; the case has failed, the run goes on."""


@dataclass(slots=True)
class Side:
    """One broker: its process, and how to ask the kernel what it costs."""

    name: SideName
    server: ServerProcess

    @property
    def bootstrap(self) -> str:
        return self.server.bootstrap

    @property
    def port(self) -> int:
        return self.server.port

    def cpu(self) -> float:
        return cpu_seconds(self.server.pid)

    def resident_mb(self) -> float:
        return resident_mb(self.server.pid)

    def create_topic(self, name: str, partitions: int = 1, replicas: int = 1, timeout_s: float = SETTLE_S) -> Uuid:
        """Created, and every partition has its leader."""
        with Wire(self.port) as wire:
            wire.socket.settimeout(timeout_s)
            topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
            timeout_ms = int(timeout_s * 1000)
            made = wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)).topics[0]
            if made.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise Broken(f"{self.name}: topic {name}: {ErrorCode(made.error_code).name}")
            return self.await_topic(wire, name, partitions, timeout_s)

    def await_topic(self, wire: Wire, name: str, partitions: int, timeout_s: float = SETTLE_S) -> Uuid:
        """Apache Kafka answers a creation before all of its parts know of it."""
        question = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        deadline = time.monotonic() + timeout_s
        while True:
            found = wire.ask(question, 12).topics[0]
            led = [part for part in found.partitions if part.error_code == 0 and part.leader_id >= 0]
            if len(led) == partitions:
                topic_id: Uuid = found.topic_id
                return topic_id
            if time.monotonic() > deadline:
                raise Broken(f"{self.name}: topic {name} has {len(led)} of {partitions} leaders")
            time.sleep(POLL_S)

    def delete_topic(self, name: str) -> None:
        with Wire(self.port) as wire:
            wire.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=SETTLE_S * 1000))

    def end_offsets(self, topic: str, partitions: int) -> int:
        """The sum over all partitions: how many records a fresh topic took in."""
        return self.offsets_of(self.port, topic, range(partitions))

    def offsets_of(self, port: int, topic: str, partitions: Iterable[int]) -> int:
        parts = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in partitions]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=parts)])
        with Wire(port) as wire:
            answer = wire.ask(request, 7)
        failed = [part for part in answer.topics[0].partitions if part.error_code != 0]
        if failed:
            raise Broken(f"{self.name}: {topic}-{failed[0].partition_index}: {ErrorCode(failed[0].error_code).name}")
        return sum(part.offset for part in answer.topics[0].partitions)


@dataclass(frozen=True, slots=True)
class Cost:
    """What went by between two moments of a side."""

    seconds: float
    cpu_seconds: float


class Stopwatch:
    """Wall clock and broker CPU of what happens inside `with`."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self.cost = Cost(0, 0)

    def __enter__(self) -> Stopwatch:
        self._cpu, self._begin = self._side.cpu(), time.perf_counter()
        return self

    def __exit__(self, *_: Any) -> None:
        seconds = time.perf_counter() - self._begin
        self.cost = Cost(seconds, self._side.cpu() - self._cpu)


class Lab:
    """Owns the directory, the client JVM and every broker that was started."""

    def __init__(self, directory: Path, *, quick: bool, say: Callable[[str], None]) -> None:
        self.directory = directory
        self.quick = quick
        self.say = say
        self.sides: dict[SideName, Side] = {}
        self.java = JavaClients(directory / "jvm")
        self._names = itertools.count(1)
        self._started: list[ServerProcess] = []
        self._filled: set[tuple[SideName, str]] = set()

    def size(self, full: int, quick: int) -> int:
        """The amount of work of a round: enough for steady figures, or enough for a glance."""
        return quick if self.quick else full

    def new_server(self, name: SideName) -> Barnabas | Kafka:
        """A broker of a case's own, formatted if that is a step of its own, not yet running."""
        directory = self.directory / f"{name}-{next(self._names)}"
        server = Barnabas(directory) if name == "barnabas" else Kafka(directory)
        self.own(server)
        return server

    def own(self, server: ServerProcess) -> None:
        self._started.append(server)

    def touch_memory(self) -> None:
        """Uses the memory that the run will need once, and frees it.

        A virtual machine gets its memory from the host when a page is first used, which takes three times as long as
        using it again; whichever round came first would pay for it.
        """
        wanted = min(self.size(16, 4) << 30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES") // 2)
        deadline = time.monotonic() + self.size(60, 8)
        held: list[mmap.mmap] = []
        while len(held) * _CHUNK < wanted and time.monotonic() < deadline:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
            held.append(mmap.mmap(-1, _CHUNK, flags=flags))
        for chunk in held:
            chunk.close()

    def start_sides(self) -> None:
        for name in ("kafka", "barnabas"):
            side: SideName = "kafka" if name == "kafka" else "barnabas"
            server = self.new_server(side)
            server.start()
            self.sides[side] = Side(side, server)
        floor = FloorProcess(self.directory / "floor")
        self.own(floor)
        floor.start()
        self.sides["floor"] = Side("floor", floor)

    def fresh_name(self, stem: str) -> str:
        return f"{stem}-{next(self._names)}"

    def fill(self, side: Side, topic: str, partitions: int, records: int, record_size: int) -> None:
        """A topic with data to read; filled once, whichever case asks first."""
        if (side.name, topic) in self._filled:
            return
        side.create_topic(topic, partitions)
        self.java.produce(side.bootstrap, topic, records, record_size, {"acks": "1", "batch.size": "65536"})
        found = side.end_offsets(topic, partitions)
        if found != records:
            raise Broken(f"{side.name}: {topic} holds {found} of {records} records")
        self._filled.add((side.name, topic))

    def settle(self) -> None:
        """Lets the disk catch up, so that no round pays for the dirty pages of another."""
        os.sync()

    def close(self) -> None:
        self.java.close()
        for server in self._started:
            server.close()
