"""An idempotent producer for records that carry their own time; acks=all, one batch in flight per partition.

A batch that is sent again after a lost answer keeps its sequence, so the broker does not append it twice.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from pipeline.wire import Cluster, Retry, check
from protocol.compression import Compression
from protocol.errors import ErrorCode
from protocol.messages.init_producer_id import InitProducerIdRequest
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import BatchBuilder

BATCH_BYTES = 256 * 1024  # far below max.message.bytes (1 MB), large enough that requests are few
REQUEST_TIMEOUT_MS = 30_000
PRODUCE_VERSION = 9
INIT_PRODUCER_ID_VERSION = 4

Headers = tuple[tuple[str, bytes | None], ...]


class Producer:
    """Keyed records go where Kafka's own producer puts them; records without a key take turns, batch by batch."""

    def __init__(
        self,
        bootstrap_servers: str,
        compression: Compression = Compression.NONE,
        *,
        like_topics_of: str | None = None,
    ) -> None:
        self._cluster = Cluster(bootstrap_servers)
        self._models = Cluster(like_topics_of or bootstrap_servers)
        self._made: set[str] = set()
        self._compression = compression
        self._batches: dict[tuple[str, int], BatchBuilder] = {}
        self._sequences: dict[tuple[str, int], int] = {}
        self._turns: dict[str, int] = {}
        self._producer_id = -1
        self._producer_epoch = -1
        self.sent = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self._cluster.close()
            self._models.close()

    def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Headers = (),
        partition: int | None = None,
        *,
        preferred: int | None = None,
    ) -> None:
        """To `partition`, or to the `preferred` one if the topic has it, or to that of the key."""
        count = self._cluster.patiently(lambda: self._cluster.partitions(topic))
        if partition is None and preferred is not None and preferred < count:
            partition = preferred
        if partition is None:
            partition = murmur2(key) % count if key is not None else self._turns.get(topic, 0) % count
        builder = self._batches.setdefault((topic, partition), BatchBuilder())
        builder.append(timestamp_ms, key, value, headers)
        if builder.size >= BATCH_BYTES:
            self._send_batch(topic, partition)

    def make_topic(self, topic: str, like: str) -> None:
        """Unless it exists: with as many partitions as `like` has, in the cluster that topics are modelled on."""
        if topic not in self._made:
            count = self._models.patiently(lambda: self._models.partitions(like))
            self._cluster.patiently(lambda: self._cluster.create_topics([(topic, count, {})]))
            self._made.add(topic)

    def flush(self) -> None:
        for topic, partition in list(self._batches):
            self._send_batch(topic, partition)

    def _send_batch(self, topic: str, partition: int) -> None:
        builder = self._batches.pop((topic, partition))
        self._turns[topic] = self._turns.get(topic, 0) + 1
        if self._producer_id < 0:
            self._cluster.patiently(self._init_producer_id)
        sequence = self._sequences.get((topic, partition), 0)
        batch = builder.build(
            compression=self._compression,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=sequence,
        )
        self._cluster.patiently(lambda: self._produce(topic, partition, bytes(batch)))
        self._sequences[topic, partition] = (sequence + len(builder)) & 0x7FFFFFFF
        self.sent += len(builder)

    def _init_producer_id(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        response = self._cluster.ask_any(request, INIT_PRODUCER_ID_VERSION)
        check(response.error_code, "asking for a producer id")
        self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch

    def _produce(self, topic: str, partition: int, batch: bytes) -> None:
        self._cluster.partitions(topic)  # finds the leader again after a failure
        request = ProduceRequest(
            acks=-1,
            timeout_ms=REQUEST_TIMEOUT_MS,
            topic_data=[
                TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
            ],
        )
        response = self._cluster.ask_leader(topic, partition, request, PRODUCE_VERSION)
        (answer,) = response.responses[0].partition_responses
        if answer.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return  # appended before, its answer was lost
        if answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
            raise Retry(f"{topic}-{partition}: KAFKA_STORAGE_ERROR")
        check(answer.error_code, f"sending to {topic}-{partition}: {answer.error_message or ''}")


def murmur2(data: bytes) -> int:
    """Kafka's hash of a key, made positive as its partitioner does."""
    mask = 0xFFFFFFFF
    m = 0x5BD1E995
    h = (0x9747B28C ^ len(data)) & mask
    whole = len(data) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    if len(data) > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ (h >> 13)) * m & mask
    return (h ^ (h >> 15)) & 0x7FFFFFFF
