"""Apache Kafka's own producer in a fault test: what it is told is noted as for the other clients.

It keeps five requests under way, sends again what failed, numbers anew what it must, and hides all of it. So an error
that comes out of it, after an hour of trying, is one that an application would have seen.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from py4j.java_gateway import JavaGateway, JavaObject
from py4j.protocol import Py4JJavaError
from support.fault_clients import Producer
from support.java_clients import JavaProducer

DELIVERY_TIMEOUT_MS = 3_600_000
"""Longer than any run: whatever is broken, it is mended before."""
BURST = 12
BATCH_BYTES = "100"
"""One or two records: a burst to one partition is as many batches, of which the producer has five under way."""
MOST_UNDER_WAY = 100
"""Records, in batches as the producer makes them."""
PAUSE_S = (0.02, 0.08)
END_S = 20.0


class KafkaJavaProducer(Producer):
    """Idempotent, acks=all, five requests under way; small batches, shorter time-outs and the long delivery."""

    def __init__(self, name: str, partitions: Sequence[int], gateway: JavaGateway, *rest: Any) -> None:
        super().__init__(name, partitions, *rest)
        self._gateway = gateway
        self._numbers = dict.fromkeys(partitions, 0)
        self._under_way: deque[tuple[int, str, JavaObject]] = deque()

    def work(self) -> None:
        bootstrap = ",".join(f"{host}:{port}" for host, port in self.addresses.values())
        producer = JavaProducer(
            self._gateway,
            bootstrap,
            delivery_timeout_ms=str(DELIVERY_TIMEOUT_MS),
            max_block_ms=str(DELIVERY_TIMEOUT_MS),
            request_timeout_ms="3000",
            batch_size=BATCH_BYTES,
        )
        try:
            while not self.stopping.is_set():
                self._send_burst(producer)
                self._take_answers()
                self.stopping.wait(self.rng.uniform(*PAUSE_S))
            end = time.monotonic() + END_S
            while self._under_way and time.monotonic() < end:
                self._take_answers()
                time.sleep(0.02)
            assert not self._under_way, f"{self._under_way[0][1]} was not acknowledged when all was well again"
        finally:
            producer.close()

    def _send_burst(self, producer: JavaProducer) -> None:
        partition = self.rng.choice(self.partitions)
        for _ in range(min(self.rng.randint(1, BURST), MOST_UNDER_WAY - len(self._under_way))):
            number = self._numbers[partition]
            self._numbers[partition] += 1
            value = f"{self.name}-{partition}-{number}"
            self.history.add("send", producer=self.name, partition=partition, seq=number, values=[value])
            self._under_way.append((partition, value, producer.send(self.topic, partition, value)))

    def _take_answers(self) -> None:
        """In the order in which they were sent, which is that of the answers in each partition."""
        while self._under_way and self._under_way[0][2].isDone():
            partition, value, future = self._under_way.popleft()
            try:
                offset = future.get().offset()
            except Py4JJavaError as error:
                text = str(error.java_exception.toString())
                self.history.add("refused", client=self.name, request=f"send of {value}", code=text)
            else:
                self.acknowledge(partition, offset, [value])
