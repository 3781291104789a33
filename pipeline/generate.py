"""Sends a generator's events to a job's topics, at once or at the pace of their timestamps."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from pipeline.generators import Event
from pipeline.job import Job
from pipeline.producer import Producer
from pipeline.wire import Cluster


def send_events(
    job: Job, bootstrap_servers: str, events: Iterable[Event], names: Mapping[str, str], *, live: bool = False
) -> int:
    """The number sent. `names` maps declared topics to the user's. `live` waits until an event's time has come."""
    cluster = Cluster(bootstrap_servers)
    try:
        cluster.reach()
        wanted = [(names.get(topic.name, topic.name), topic.partitions, topic.configs or {}) for topic in job.reads]
        cluster.patiently(lambda: cluster.create_topics(wanted))
    finally:
        cluster.close()
    with Producer(bootstrap_servers) as producer:
        for event in events:
            ahead_s = event.timestamp_ms / 1000 - time.time() if live else 0
            if ahead_s > 0:
                producer.flush()
                time.sleep(ahead_s)
            topic = names.get(event.topic, event.topic)
            producer.send(topic, event.key, event.value, event.timestamp_ms, event.headers)
    return producer.sent
