"""A varied workload through kafka-python, so that a data directory holds some of everything."""

from __future__ import annotations

import random

from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

CODECS = (None, "gzip", "snappy", "lz4", "zstd")
SEGMENT_BYTES = 1048576  # the smallest that Kafka 4.3 accepts


def varied_workload(bootstrap: str, seed: int = 1) -> None:
    """Every codec over several segments, idempotent and not, headers, null keys and values, both timestamp types,
    recompression, deleted records, more partitions, changed configs, a deleted topic."""
    rng = random.Random(seed)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    small = {"segment.bytes": str(SEGMENT_BYTES)}
    topics = {f"codec-{codec}": {"num_partitions": 2, "configs": small} for codec in CODECS}
    topics["stamped"] = {"configs": {"message.timestamp.type": "LogAppendTime"}}
    topics["recompressed"] = {"configs": {"compression.type": "zstd"}}
    topics["compacted"] = {"configs": {"cleanup.policy": "compact"}}
    topics["doomed"] = {"num_partitions": 2}
    topics["empty"] = {}
    admin.create_topics(topics, wait_for_metadata=True)

    for position, codec in enumerate(CODECS):
        with_sequences = position % 2 == 0
        producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=codec,
            acks="all",
            enable_idempotence=with_sequences,
            linger_ms=5,
            batch_size=32768,
        )
        for number in range(2000):
            producer.send(
                f"codec-{codec}",
                key=None if number % 10 == 1 else b"key-%d" % (number % 50),
                value=None if number % 10 == 2 else rng.randbytes(1400) + b"a" * rng.randrange(400),
                headers=[("number", b"%d" % number), ("empty", b"")] if number % 3 == 0 else [],
                partition=number % 2,
            )
        for topic in ("stamped", "recompressed", "compacted", "doomed"):
            for number in range(20):
                producer.send(topic, key=b"key-%d" % (number % 5), value=b"value %d of %s" % (number, topic.encode()))
        producer.flush()
        producer.close()

    admin.delete_records({TopicPartition("codec-gzip", 0): 700})
    admin.create_partitions({"stamped": 3})
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "stamped", configs={"retention.ms": "86400000"})])
    admin.delete_topics(["doomed"])
    admin.close()
