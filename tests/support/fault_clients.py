"""Clients of a fault test, on raw sockets: they retry for ever, and note in a history exactly what they were told.

A real client hides what it was told behind its own retries. These send one request at a time and repeat it unchanged,
as an idempotent producer must, until the broker has decided it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from support.history import History
from support.wire import OneRecord, Wire

from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import build_batch, iter_batches, iter_records

TIMEOUT_S = 3.0
"""Longer than any answer of a broker that lives takes; a hung one is left after it."""
RETRY_S = 0.03
RECORDS_PER_BATCH = 5

# These say that the records were not stored, or may have been; the same batch is sent again.
_RETRIED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class Client(threading.Thread):
    """Connections to brokers by id, and who leads what as the last one asked had it."""

    def __init__(self, name: str, addresses: dict[int, tuple[str, int]], topic: str, history: History) -> None:
        super().__init__(name=name, daemon=True)
        self.addresses = addresses
        self.topic = topic
        self.history = history
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self.rng = random.Random(name)
        self._wires: dict[int, Wire] = {}
        self._leaders: dict[int, int] = {}
        self._epochs: dict[int, int] = {}

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

    def stop(self) -> None:
        self.stopping.set()
        self.join(30)
        assert not self.is_alive(), f"{self.name} does not stop"
        if self.failure is not None:
            raise AssertionError(f"{self.name} failed: {self.failure!r}") from self.failure

    def pause(self) -> None:
        self.stopping.wait(RETRY_S)

    def ask(self, node: int, request: Any, version: int) -> Any:
        """None when there is no answer; what became of the request is then not known."""
        try:
            wire = self._wires.get(node)
            if wire is None:
                host, port = self.addresses[node]
                wire = self._wires[node] = Wire(port, host, timeout_s=TIMEOUT_S)
            return wire.ask(request, version)
        except OSError:
            broken = self._wires.pop(node, None)
            if broken is not None:
                broken.socket.close()
            return None

    def ask_any(self, request: Any, version: int) -> Any:
        for node in self.rng.sample(sorted(self.addresses), len(self.addresses)):
            answer = self.ask(node, request, version)
            if answer is not None:
                return answer
        return None

    def leader(self, partition: int) -> int | None:
        if partition not in self._leaders:
            answer = self.ask_any(MetadataRequest(topics=[MetadataRequestTopic(name=self.topic)]), 12)
            if answer is not None and answer.topics and answer.topics[0].error_code == 0:
                for one in answer.topics[0].partitions:
                    if one.leader_id in self.addresses:
                        self._leaders[one.partition_index] = one.leader_id
                        self._epochs[one.partition_index] = one.leader_epoch
        return self._leaders.get(partition)

    def forget_leader(self, partition: int) -> None:
        self._leaders.pop(partition, None)

    def until(self, attempt: Callable[[], bool]) -> bool:
        """Repeats the attempt until it has succeeded, or until the client is to stop."""
        while not self.stopping.is_set():
            if attempt():
                return True
            self.pause()
        return False


class Producer(Client):
    """Idempotent, acks=all, one batch under way; writes to its partitions in turn."""

    def __init__(self, name: str, partitions: Sequence[int], *rest: Any) -> None:
        super().__init__(name, *rest)
        self.partitions = partitions
        self.acknowledged = 0

    def work(self) -> None:
        self.producer_id = -1
        if not self.until(self._init):
            return
        sequences = dict.fromkeys(self.partitions, 0)
        while not self.stopping.is_set():
            for partition in self.partitions:
                first = sequences[partition]
                values = [f"{self.name}-{partition}-{first + at}" for at in range(RECORDS_PER_BATCH)]
                for at, value in enumerate(values):
                    self.history.add("send", producer=self.name, partition=partition, seq=first + at, value=value)
                if not self.until(lambda p=partition, f=first, v=values: self._send(p, f, v)):  # type: ignore[misc]
                    return
                sequences[partition] += len(values)
            self.stopping.wait(0.005)

    def _init(self) -> bool:
        answer = self.ask_any(InitProducerIdRequest(transactional_id=None), 4)
        if answer is not None and answer.error_code == 0:
            self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
        return self.producer_id >= 0

    def _send(self, partition: int, sequence: int, values: list[str]) -> bool:
        leader = self.leader(partition)
        if leader is None:
            return False
        records = build_batch(
            [OneRecord(value.encode(), timestamp=time.time_ns() // 1_000_000) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
        )
        data = PartitionProduceData(index=partition, records=bytes(records))
        request = ProduceRequest(
            acks=-1, timeout_ms=2_000, topic_data=[TopicProduceData(name=self.topic, partition_data=[data])]
        )
        answer = self.ask(leader, request, 9)
        if answer is None:
            self.forget_leader(partition)
            return False
        (result,) = answer.responses[0].partition_responses
        code = ErrorCode(result.error_code)
        if code is ErrorCode.NONE:
            for at, value in enumerate(values):
                self.history.add(
                    "ack", producer=self.name, partition=partition, value=value, offset=result.base_offset + at
                )
            self.acknowledged += len(values)
            return True
        if code not in _RETRIED:
            raise AssertionError(f"partition {partition}, sequence {sequence}: {code.name}")
        self.forget_leader(partition)
        return False


class Reader(Client):
    """Reads the partitions from the beginning on, each offset once, as far as they are committed."""

    def __init__(self, name: str, partitions: Sequence[int], *rest: Any) -> None:
        super().__init__(name, *rest)
        self.positions = dict.fromkeys(partitions, 0)

    def work(self) -> None:
        while not self.stopping.is_set():
            for partition in self.positions:
                if not self.stopping.is_set():
                    self._read(partition)

    def _read(self, partition: int) -> None:
        leader = self.leader(partition)
        if leader is None:
            return self.pause()
        position = self.positions[partition]
        wanted = FetchPartition(
            partition=partition,
            current_leader_epoch=self._epochs[partition],
            fetch_offset=position,
            partition_max_bytes=1 << 20,
        )
        request = FetchRequest(
            max_wait_ms=50, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic=self.topic, partitions=[wanted])]
        )
        answer = self.ask(leader, request, 11)
        if answer is None or answer.error_code != 0:
            return self.forget_leader(partition)
        (data,) = answer.responses[0].partitions
        code = ErrorCode(data.error_code)
        if code is not ErrorCode.NONE:
            if code not in _RETRIED:
                raise AssertionError(f"partition {partition}, offset {position}: {code.name}")
            self.forget_leader(partition)
            return self.pause()
        records = memoryview(data.records or b"")
        for start, header in iter_batches(records):
            for record in iter_records(records[start : start + header.size]):
                if record.offset >= position:
                    value = bytes(record.value or b"").decode()
                    self.history.add("read", consumer=self.name, partition=partition, offset=record.offset, value=value)
                    position = record.offset + 1
        self.positions[partition] = position
        return None


class Committer(Client):
    """Commits ever larger offsets for a group of its own, and asks now and then what they are."""

    def __init__(self, name: str, partitions: Sequence[int], *rest: Any) -> None:
        super().__init__(name, *rest)
        self.partitions = partitions
        self._coordinator: int | None = None

    def work(self) -> None:
        offset = 0
        while not self.stopping.is_set():
            offset += 1
            partition = self.partitions[offset % len(self.partitions)]
            if self.until(lambda p=partition, o=offset: self._commit(p, o)):  # type: ignore[misc]
                self.until(lambda p=partition: self._fetch(p))  # type: ignore[misc]
            self.stopping.wait(0.01)

    def _find(self) -> int | None:
        if self._coordinator is None:
            answer = self.ask_any(FindCoordinatorRequest(key_type=0, coordinator_keys=[self.name]), 4)
            if answer is not None and answer.coordinators[0].error_code == 0:
                self._coordinator = answer.coordinators[0].node_id
        return self._coordinator

    def _ask_coordinator(self, request: Any, version: int) -> Any:
        node = self._find()
        answer = None if node is None else self.ask(node, request, version)
        if answer is None:
            self._coordinator = None
        return answer

    def _commit(self, partition: int, offset: int) -> bool:
        part = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=self.name,
            generation_id_or_member_epoch=-1,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[part])],
        )
        answer = self._ask_coordinator(request, 8)
        if answer is None:
            return False
        if answer.topics[0].partitions[0].error_code != 0:
            self._coordinator = None
            return False
        self.history.add("commit", group=self.name, partition=partition, offset=offset)
        return True

    def _fetch(self, partition: int) -> bool:
        group = OffsetFetchRequestGroup(
            group_id=self.name, topics=[OffsetFetchRequestTopics(name=self.topic, partition_indexes=[partition])]
        )
        answer = self._ask_coordinator(OffsetFetchRequest(groups=[group]), 8)
        if answer is None:
            return False
        (found,) = answer.groups
        if found.error_code != 0 or found.topics[0].partitions[0].error_code != 0:
            self._coordinator = None
            return False
        self.history.add(
            "fetched", group=self.name, partition=partition, offset=found.topics[0].partitions[0].committed_offset
        )
        return True
