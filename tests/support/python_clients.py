"""kafka-python's consumer in a group, polled by a thread of its own as an application would."""

from __future__ import annotations

import threading
from typing import Any, Protocol

from kafka import KafkaConsumer


class Member(Protocol):
    """What the tests of groups look at; JavaConsumer and PythonConsumer both have it."""

    assigned: set[tuple[str, int]]
    seen: list[tuple[str, int, int, str]]
    failure: BaseException | None

    def close(self) -> None: ...


class PythonConsumer:
    """Notes what it got; commits by itself, also before it gives partitions away."""

    def __init__(self, bootstrap: str, group: str, *topics: str, **settings: Any) -> None:
        defaults: dict[str, Any] = {
            "auto_offset_reset": "earliest",
            "auto_commit_interval_ms": 100,
            "heartbeat_interval_ms": 200,
            "session_timeout_ms": 10_000,
            "metadata_max_age_ms": 500,
            "retry_backoff_ms": 50,
        }
        self._consumer = KafkaConsumer(*topics, bootstrap_servers=bootstrap, group_id=group, **{**defaults, **settings})
        self._topics = topics
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.assigned: set[tuple[str, int]] = set()
        self.seen: list[tuple[str, int, int, str]] = []
        """(topic, partition, offset, value), in the order of arrival."""
        self.failure: BaseException | None = None
        self._thread.start()

    def _run(self) -> None:
        try:
            # A leader that assigns before it knows the topics may never look again (seen against Apache Kafka too).
            for topic in self._topics:
                self._consumer.partitions_for_topic(topic)
            while not self._stop.is_set():
                polled = self._consumer.poll(timeout_ms=100)
                self.assigned = {(part.topic, part.partition) for part in self._consumer.assignment()}
                for part, records in polled.items():
                    self.seen += [(part.topic, part.partition, one.offset, one.value.decode()) for one in records]
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
