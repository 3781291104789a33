"""A producer of a fault test with several batches under way, as real ones have: five per partition on one connection.

A broker processes a request while earlier ones of its connection still wait for replicas. So the first of five may be
refused and the second be accepted, all five may be stored and none of them acknowledged, or a new leader may have
three of them. Whatever happens, the producer sends what is not acknowledged again, unchanged and in order: the whole
window at once, not one by one as the Java client does, which is harder on the broker.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from support.fault_answers import PRODUCE
from support.fault_clients import RECORDS_PER_BATCH, RESET, RETRY_S, TIMEOUT_S, Producer
from support.wire import Wire

from protocol.errors import ErrorCode
from protocol.messages.produce import PartitionProduceResponse, ProduceRequest

WINDOW = 5
"""As many batches as a partition remembers of a producer. They count from the first that is not acknowledged on, also
when later ones are: were more sent, it would be forgotten, and no more be known when it is sent again."""
PAUSE_S = (0.01, 0.06)
"""Between two bursts of batches in a partition."""
MAX_EPOCH = 0x7FFF
_VERSION = 9


@dataclass(eq=False)
class Batch:
    first: int
    """What the application numbers the first record with."""
    sequence: int
    """The broker's number for it; begins anew with every epoch."""
    values: list[str]
    was_sent: bool = False
    is_under_way: bool = False
    is_settled: bool = False
    """Acknowledged, or refused for good."""
    is_next: bool = False
    """When it was sent, all before it were acknowledged: who now misses one has lost it."""


class Window:
    """The batches of one partition from the first that is not acknowledged on, in the order of the sequences."""

    def __init__(self, partition: int, producer_id: int, epoch: int) -> None:
        self.partition = partition
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: deque[Batch] = deque()
        self.next_first = 0
        self.next_sequence = 0
        self.size = 1
        """A partition that knows nothing of a producer takes any sequence of it, in Apache Kafka, too, so the first
        batch goes alone: the second could be stored without it."""
        self.is_torn = False
        """The partition waits for a sequence that is no more to be had: on with a new epoch."""
        self.fills_at = 0.0
        self.retries_at = 0.0

    def add(self, values: list[str]) -> None:
        self.batches.append(Batch(self.next_first, self.next_sequence, values))
        self.next_first += len(values)
        self.next_sequence += len(values)

    def unsent(self) -> list[Batch]:
        return [batch for batch in self.batches if not batch.is_under_way and not batch.is_settled]

    def has_under_way(self) -> bool:
        return any(batch.is_under_way for batch in self.batches)

    def settle(self, batch: Batch) -> None:
        batch.is_settled = True
        self.size = WINDOW
        while self.batches and self.batches[0].is_settled:
            self.batches.popleft()

    def rest(self) -> None:
        """What is to be sent again waits a moment."""
        self.retries_at = time.monotonic() + RETRY_S

    def begin_epoch(self, producer_id: int, epoch: int) -> None:
        """Everything is numbered anew (KIP-360); nothing may be under way."""
        self.producer_id, self.epoch, self.next_sequence, self.is_torn = producer_id, epoch, 0, False
        self.batches = deque(self.unsent())
        for batch in self.batches:
            batch.sequence = self.next_sequence
            self.next_sequence += len(batch.values)


class Pipe:
    """A connection to a node and the batches on it; answers come in the order of the requests."""

    def __init__(self, host: str, port: int) -> None:
        self.wire = Wire(port, host, timeout_s=TIMEOUT_S)
        self.wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.under_way: deque[tuple[int, Window, Batch, float]] = deque()

    def send(self, window: Window, batch: Batch, request: ProduceRequest) -> None:
        number = self.wire.send_request(request, _VERSION)
        batch.is_under_way = batch.was_sent = True
        self.under_way.append((number, window, batch, time.monotonic() + TIMEOUT_S))

    def receive(self) -> tuple[Window, Batch, PartitionProduceResponse]:
        number, window, batch, _ = self.under_way[0]
        answer = self.wire.read_response(ProduceRequest.API_KEY, _VERSION)
        self.under_way.popleft()
        batch.is_under_way = False
        (result,) = answer.responses[0].partition_responses
        assert (self.wire.answered, result.index) == (number, window.partition), "an answer to another request"
        return window, batch, result

    def close(self) -> list[Window]:
        """Returns whose batches were under way."""
        self.wire.socket.close()
        for _, _, batch, _ in self.under_way:
            batch.is_under_way = False
        return [window for _, window, _, _ in self.under_way]


class PipelinedProducer(Producer):
    """Idempotent, acks=all, a window of batches under way in each of its partitions."""

    def __init__(self, name: str, partitions: Sequence[int], *rest: Any) -> None:
        super().__init__(name, partitions, *rest)
        self._pipes: dict[int, Pipe] = {}

    def work(self) -> None:
        if not self.until(self.init):
            return
        windows = [Window(partition, self.producer_id, self.producer_epoch) for partition in self.partitions]
        try:
            while not self.stopping.is_set():
                for window in windows:
                    self._fill(window)
                    self._send_all(window)
                self._listen()
            while any(pipe.under_way for pipe in self._pipes.values()):
                self._listen()  # what is answered before the end is acknowledged; the rest nobody knows
        finally:
            for pipe in self._pipes.values():
                pipe.close()

    def _fill(self, window: Window) -> None:
        """In bursts, so that several are under way when something happens, yet the brokers have time for others."""
        now = time.monotonic()
        room = window.size - len(window.batches)
        if now < window.fills_at or window.is_torn or room <= 0:
            return
        window.fills_at = now + self.rng.uniform(*PAUSE_S)
        for _ in range(self.rng.randint(1, room)):
            first, partition = window.next_first, window.partition
            values = [f"{self.name}-{partition}-{first + at}" for at in range(RECORDS_PER_BATCH)]
            self.history.add("send", producer=self.name, partition=partition, seq=first, values=values)
            window.add(values)

    def _send_all(self, window: Window) -> None:
        """What is not under way. Behind one that could not be sent, none may leave."""
        if not window.unsent() or time.monotonic() < window.retries_at:
            return
        if window.is_torn and (window.has_under_way() or not self._begin_epoch(window)):
            return
        leader = self.leader(window.partition)
        if leader is None:
            window.rest()
            return
        try:
            pipe = self._pipes.get(leader)
            if pipe is None:
                pipe = self._pipes[leader] = Pipe(*self.addresses[leader])
            again = sum(batch.was_sent for batch in window.unsent())
            if again:
                self.history.add("again", producer=self.name, partition=window.partition, batches=again, node=leader)
            for batch in window.unsent():
                batch.is_next = batch is window.batches[0]
                numbers = (window.producer_id, window.epoch, batch.sequence)
                pipe.send(window, batch, self.request(window.partition, numbers, batch.values))
        except OSError:
            self._break(leader)
            self.forget_leader(window.partition)
            window.rest()

    def _listen(self) -> None:
        nodes = {pipe.wire.socket: node for node, pipe in self._pipes.items() if pipe.under_way}
        if not nodes:
            self.pause()
            return
        readable, _, _ = select.select(list(nodes), [], [], 0.01)
        for ready in readable:
            self._receive(nodes[ready])
        for node, pipe in list(self._pipes.items()):
            if pipe.under_way and pipe.wire.socket not in readable and time.monotonic() > pipe.under_way[0][3]:
                self._break(node)

    def _receive(self, node: int) -> None:
        try:
            window, batch, result = self._pipes[node].receive()
        except OSError:
            self._break(node)
            return
        code = self.answered("produce", result.error_code, PRODUCE)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self.acknowledge(window.partition, result.base_offset if code is ErrorCode.NONE else -1, batch.values)
            window.settle(batch)
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not batch.is_next:
            pass  # one before it was refused, and goes first
        elif code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID):
            self.history.add(
                "gap", producer=self.name, partition=window.partition, seq=batch.first, code=code.name, node=node
            )
            window.is_torn = True
        elif code in PRODUCE:
            self.forget_leader(window.partition)
            window.rest()
        else:
            window.settle(batch)  # the application has been told; what follows has no predecessor any more
            window.is_torn = True

    def _break(self, node: int) -> None:
        pipe = self._pipes.pop(node, None)
        for window in pipe.close() if pipe is not None else ():
            self.forget_leader(window.partition)
            window.rest()

    def _begin_epoch(self, window: Window) -> bool:
        if window.epoch < MAX_EPOCH:
            window.begin_epoch(window.producer_id, window.epoch + 1)
            return True
        self.producer_id = -1
        if self.init():
            window.begin_epoch(self.producer_id, self.producer_epoch)
        return self.producer_id >= 0
