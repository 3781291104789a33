"""Clients of a fault test, on raw sockets: they retry for ever, and note in a history exactly what they were told.

A real client hides what it was told behind its own retries. These send one request at a time and repeat it unchanged,
as an idempotent producer must, until the broker has decided it. Members of groups are in `fault_groups`.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any

from support.fault_answers import FETCH, RETRIABLE
from support.history import History
from support.wire import OneRecord, Wire

from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import build_batch, iter_batches, iter_records
from protocol.uuids import Uuid

PRODUCE_TIMEOUT_MS = 1_500
TIMEOUT_S = 2.0
"""Longer than any answer of a broker that lives takes; a hung one is left after it."""
RETRY_S = 0.03
RECORDS_PER_BATCH = 5
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: what was not sent is thrown away. Otherwise the kernel would deliver a request that the client has given
up and sent again elsewhere, seconds later, when a network has healed."""


class Client(threading.Thread):
    """Connections to brokers by id, and who leads what as the last one asked had it."""

    def __init__(self, name: str, addresses: dict[int, tuple[str, int]], topic: str, history: History) -> None:
        super().__init__(name=name, daemon=True)
        self.addresses = addresses
        self.topic = topic
        self.topic_id = Uuid.ZERO
        self.history = history
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self.rng = random.Random(name)
        self._wires: dict[int, Wire] = {}
        self._leaders: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        self._before: dict[int, int] = {}
        self.read_epochs: dict[int, int] = {}
        """The leader epoch of the last record that was read, by partition."""

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.failure = error
        finally:
            for wire in self._wires.values():
                wire.socket.close()

    def work(self) -> None:
        raise NotImplementedError

    def check(self) -> None:
        if self.failure is not None:
            raise AssertionError(f"{self.name} failed: {self.failure!r}") from self.failure

    def stop(self) -> None:
        self.stopping.set()
        self.join(30)
        assert not self.is_alive(), f"{self.name} does not stop"
        self.check()

    def pause(self) -> None:
        self.stopping.wait(RETRY_S)

    def ask(self, node: int, request: Any, version: int, timeout_s: float = TIMEOUT_S) -> Any:
        """None when there is no answer; what became of the request is then not known."""
        try:
            wire = self._wires.get(node)
            if wire is None:
                host, port = self.addresses[node]
                wire = self._wires[node] = Wire(port, host, timeout_s=TIMEOUT_S)
                wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            wire.socket.settimeout(timeout_s)
            return wire.ask(request, version)
        except OSError:
            broken = self._wires.pop(node, None)
            if broken is not None:
                broken.socket.close()
            return None

    def answered(self, request: str, code: int, retried: Collection[ErrorCode]) -> ErrorCode:
        """Notes an error that a Java client would not try to get over, but throw at its application."""
        error = ErrorCode(code)
        if error is not ErrorCode.NONE and error not in retried:
            self.history.add("refused", client=self.name, request=request, code=error.name)
        return error

    def ask_any(self, request: Any, version: int, last: int | None = None) -> Any:
        """In any order, but the node `last` only if nobody else answers: it may not know that it is cut off."""
        nodes = self.rng.sample(sorted(self.addresses), len(self.addresses))
        for node in sorted(nodes, key=lambda one: one == last):
            answer = self.ask(node, request, version)
            if answer is not None:
                return answer
        return None

    def leader(self, partition: int) -> int | None:
        if partition not in self._leaders:
            before = self._before.get(partition)
            answer = self.ask_any(MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)]), 12, before)
            if answer is not None and not self.answered("metadata", answer.topics[0].error_code, RETRIABLE):
                self.topic_id = answer.topics[0].topic_id
                for one in answer.topics[0].partitions:
                    is_old = one.leader_epoch < self._epochs.get(one.partition_index, -1)
                    if one.leader_id in self.addresses and not is_old:
                        self._leaders[one.partition_index] = one.leader_id
                        self._epochs[one.partition_index] = one.leader_epoch
        return self._leaders.get(partition)

    def epoch(self, partition: int) -> int:
        """Of the leader, as far as it is known."""
        return self._epochs.get(partition, -1)

    def forget_leader(self, partition: int) -> None:
        leader = self._leaders.pop(partition, None)
        if leader is not None:
            self._before[partition] = leader

    def demand_epoch(self, partition: int, epoch: int) -> None:
        """There is a leader in this epoch, or later: whoever believes in an earlier one does not know all (KIP-320)."""
        if epoch > self._epochs.get(partition, -1):
            self.forget_leader(partition)
            self._epochs[partition] = epoch

    def until(self, attempt: Callable[[], bool]) -> bool:
        """Repeats the attempt until it has succeeded, or until the client is to stop."""
        while not self.stopping.is_set():
            if attempt():
                return True
            self.pause()
        return False

    def read(self, partition: int, position: int) -> list[str]:
        """What is committed from `position` on, as far as one answer goes; nothing if there is none."""
        leader = self.leader(partition)
        if leader is None:
            self.pause()
            return []
        data = self.fetch(leader, partition, position)
        if data is None:
            self.forget_leader(partition)
            return []
        if self.answered("fetch", data.error_code, FETCH):
            self.forget_leader(partition)
            self.pause()
            return []
        return self.values_in(data, partition, position)

    def fetch(self, node: int, partition: int, position: int, rack_id: str = "") -> PartitionData | None:
        wanted = FetchPartition(
            partition=partition,
            current_leader_epoch=self.epoch(partition),
            fetch_offset=position,
            partition_max_bytes=1 << 20,
        )
        request = FetchRequest(
            max_wait_ms=50,
            min_bytes=1,
            max_bytes=1 << 20,
            rack_id=rack_id,
            topics=[FetchTopic(topic=self.topic, partitions=[wanted])],
        )
        answer = self.ask(node, request, 11)
        if answer is None or self.answered("fetch", answer.error_code, ()):
            return None
        (data,) = answer.responses[0].partitions
        assert isinstance(data, PartitionData)
        return data

    def values_in(self, data: PartitionData, partition: int, position: int) -> list[str]:
        records = memoryview(data.records or b"")
        values: list[str] = []
        for start, header in iter_batches(records):
            for record in iter_records(records[start : start + header.size]):
                if record.offset >= position:
                    gap = record.offset - position - len(values)
                    assert gap == 0, f"partition {partition}: {gap} offsets are missing before {record.offset}"
                    values.append(bytes(record.value or b"").decode())
                    self.read_epochs[partition] = header.partition_leader_epoch
        return values


class Producer(Client):
    """Idempotent, acks=all, one batch under way; writes to its partitions in turn."""

    def __init__(self, name: str, partitions: Sequence[int], *rest: Any) -> None:
        super().__init__(name, *rest)
        self.partitions = partitions
        self.acknowledged = 0

    def work(self) -> None:
        self.producer_id = -1
        if not self.until(self.init):
            return
        sequences = dict.fromkeys(self.partitions, 0)
        while not self.stopping.is_set():
            for partition in self.partitions:
                first = sequences[partition]
                values = [f"{self.name}-{partition}-{first + at}" for at in range(RECORDS_PER_BATCH)]
                self.history.add("send", producer=self.name, partition=partition, seq=first, values=values)
                if not self.until(lambda p=partition, f=first, v=values: self._send(p, f, v)):  # type: ignore[misc]
                    return
                sequences[partition] += len(values)
            self.stopping.wait(0.01)

    def init(self) -> bool:
        answer = self.ask_any(InitProducerIdRequest(transactional_id=None), 4)
        if answer is not None and not self.answered("init producer id", answer.error_code, RETRIABLE):
            self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        return self.producer_id >= 0

    def request(self, partition: int, numbers: tuple[int, int, int], values: list[str]) -> ProduceRequest:
        """`numbers` are producer id, producer epoch and the sequence of the first record."""
        records = build_batch(
            [OneRecord(value.encode(), timestamp=time.time_ns() // 1_000_000) for value in values],
            producer_id=numbers[0],
            producer_epoch=numbers[1],
            base_sequence=numbers[2],
        )
        data = PartitionProduceData(index=partition, records=bytes(records))
        topic = TopicProduceData(name=self.topic, partition_data=[data])
        return ProduceRequest(acks=-1, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=[topic])

    def _send(self, partition: int, sequence: int, values: list[str]) -> bool:
        leader = self.leader(partition)
        if leader is None:
            return False
        request = self.request(partition, (self.producer_id, self.producer_epoch, sequence), values)
        answer = self.ask(leader, request, 9)
        if answer is None:
            self.forget_leader(partition)
            return False
        (result,) = answer.responses[0].partition_responses
        # One that has a single batch under way has no other that could come first: its sequence is in order.
        if not self.answered("produce", result.error_code, RETRIABLE):
            self.acknowledge(partition, result.base_offset, values)
            return True
        self.forget_leader(partition)
        return False

    def acknowledge(self, partition: int, offset: int, values: list[str]) -> None:
        self.history.add("ack", producer=self.name, partition=partition, offset=offset, values=values)
        self.acknowledged += len(values)


class Reader(Client):
    """Reads the partitions from the beginning on, each offset once, as far as they are committed."""

    def __init__(self, name: str, partitions: Sequence[int], *rest: Any) -> None:
        super().__init__(name, *rest)
        self.positions = dict.fromkeys(partitions, 0)

    def work(self) -> None:
        while not self.stopping.is_set():
            for partition, position in self.positions.items():
                if self.stopping.is_set():
                    return
                values = self.read(partition, position)
                if values:
                    self.note(partition, position, values)
                    self.positions[partition] = position + len(values)

    def note(self, partition: int, position: int, values: list[str], **more: Any) -> None:
        self.history.add("read", consumer=self.name, partition=partition, offset=position, values=values, **more)
