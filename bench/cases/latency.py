"""From `send` to `poll` at 1,000 messages a second, with the stock Java clients and acks=all, in an open loop."""

from __future__ import annotations

from bench.lab import Lab, Side, Stopwatch
from bench.model import Case, Metric
from bench.stats import percentile

PER_SECOND = 1000
RECORD_SIZE = 100
DISCARDED_S = 1  # connections and the first fetches


def run(lab: Lab, side: Side, replicas: int = 1) -> dict[str, float]:
    topic = lab.fresh_name("latency")
    side.create_topic(topic, replicas=replicas)
    seconds = lab.size(20, 4) + DISCARDED_S
    with Stopwatch(side) as watch:
        found = lab.java.latencies_ms(side.bootstrap, topic, seconds * PER_SECOND, PER_SECOND, RECORD_SIZE)
    side.delete_topic(topic)
    steady = found[DISCARDED_S * PER_SECOND :]
    return {
        "p50": percentile(steady, 50),
        "p99": percentile(steady, 99),
        "p99.9": percentile(steady, 99.9),
        "broker CPU": watch.cost.cpu_seconds / watch.cost.seconds * 100,
    }


CASES: tuple[Case, ...] = (
    Case(
        "end to end, 1,000 msg/s",
        (
            Metric("p50", "ms", "lower"),
            Metric("p99", "ms", "lower", 0.6),
            Metric("p99.9", "ms", "lower"),
            Metric("broker CPU", "% of a core", "lower"),
        ),
        run,
    ),
)
