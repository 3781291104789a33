"""Kafka's Java producer and consumer, driven from Python through the shared JVM.

The Java producer is the one whose retries, sequences and in-flight limits Kafka's own guarantees are stated for.
"""

from __future__ import annotations

import threading

from py4j.java_gateway import JavaGateway, JavaObject


class JavaProducer:
    """An idempotent `KafkaProducer<String, String>` with acks=all that keeps retrying through broker restarts."""

    def __init__(self, gateway: JavaGateway, bootstrap: str, **settings: str) -> None:
        self._gateway = gateway
        serializer = "org.apache.kafka.common.serialization.StringSerializer"
        properties = gateway.jvm.java.util.HashMap()
        defaults = {
            "bootstrap.servers": bootstrap,
            "key.serializer": serializer,
            "value.serializer": serializer,
            "enable.idempotence": "true",
            "acks": "all",
            "delivery.timeout.ms": "120000",
            "request.timeout.ms": "10000",
            "retry.backoff.ms": "20",
            "retry.backoff.max.ms": "100",
            "reconnect.backoff.ms": "20",
            "reconnect.backoff.max.ms": "100",
            "linger.ms": "0",
            # Without this a producer that finds no broker forgets its topics, and send() blocks until one is back.
            "metadata.recovery.strategy": "none",
        }
        for name, value in {**defaults, **{key.replace("_", "."): value for key, value in settings.items()}}.items():
            properties.put(name, value)
        self._producer = gateway.jvm.org.apache.kafka.clients.producer.KafkaProducer(properties)

    def send(self, topic: str, partition: int, value: str) -> JavaObject:
        """Java's Future<RecordMetadata>."""
        record = self._gateway.jvm.org.apache.kafka.clients.producer.ProducerRecord
        return self._producer.send(record(topic, partition, None, value))

    def flush(self) -> None:
        self._producer.flush()

    def close(self) -> None:
        self._producer.close(self._gateway.jvm.java.time.Duration.ofSeconds(5))


class JavaConsumer:
    """A `KafkaConsumer<String, String>` in a group, polled by a thread of its own as an application would.

    The thread notes what it got; `assigned` and `seen` may be read at any time. Offsets are committed by the consumer
    itself, also before it gives partitions away, so a clean handover repeats nothing.
    """

    def __init__(self, gateway: JavaGateway, bootstrap: str, group: str, **settings: str) -> None:
        self._gateway = gateway
        deserializer = "org.apache.kafka.common.serialization.StringDeserializer"
        properties = gateway.jvm.java.util.HashMap()
        defaults = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "key.deserializer": deserializer,
            "value.deserializer": deserializer,
            "auto.commit.interval.ms": "100",
            "auto.offset.reset": "earliest",
            "retry.backoff.ms": "20",
            "retry.backoff.max.ms": "100",
            "reconnect.backoff.ms": "20",
            "reconnect.backoff.max.ms": "100",
            # A new topic is seen, and a new partition consumed, within half a second.
            "metadata.max.age.ms": "500",
        }
        classic = {"heartbeat.interval.ms": "200", "session.timeout.ms": "10000"}
        if settings.get("group_protocol", "classic") == "classic":
            defaults |= classic
        for name, value in {**defaults, **{key.replace("_", "."): value for key, value in settings.items()}}.items():
            properties.put(name, value)
        self._consumer = gateway.jvm.org.apache.kafka.clients.consumer.KafkaConsumer(properties)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.assigned: set[tuple[str, int]] = set()
        self.seen: list[tuple[str, int, int, str]] = []
        """(topic, partition, offset, value), in the order of arrival."""
        self.failure: BaseException | None = None

    def subscribe(self, *topics: str) -> JavaConsumer:
        names = self._gateway.jvm.java.util.ArrayList()
        for topic in topics:
            names.add(topic)
        self._consumer.subscribe(names)
        self._thread.start()
        return self

    def subscribe_pattern(self, regex: str) -> JavaConsumer:
        """Evaluated by the broker (KIP-848)."""
        pattern = self._gateway.jvm.org.apache.kafka.clients.consumer.SubscriptionPattern(regex)
        self._consumer.subscribe(pattern)
        self._thread.start()
        return self

    def _run(self) -> None:
        timeout = self._gateway.jvm.java.time.Duration.ofMillis(100)
        try:
            while not self._stop.is_set():
                records = self._consumer.poll(timeout)
                self.assigned = {(part.topic(), part.partition()) for part in self._consumer.assignment()}
                if not records.isEmpty():
                    self.seen += [
                        (part.topic(), part.partition(), one.offset(), one.value())
                        for part in records.partitions()
                        for one in records.records(part)
                    ]
            self._consumer.close()
        except BaseException as failure:
            self.failure = failure
        self.assigned = set()

    def close(self) -> None:
        """Leaves the group and ends; what went wrong in the thread comes out here."""
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive(), "the consumer does not end"
        if self.failure is not None:
            raise AssertionError(f"the consumer failed: {self.failure}") from self.failure
