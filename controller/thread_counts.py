"""Dynamic changes of thread counts: at most by a factor of two at a time, as Kafka insists.

Kafka resizes its pools while they run. Barnabas has no such pools, but what Kafka would refuse is refused here, too: a
cluster may hold brokers of both kinds, and tools rely on the answer.
"""

from __future__ import annotations

from typing import Final

from config.broker import BrokerConfig

_POOLS: Final = {
    "num.io.threads": "num_io_threads",
    "num.replica.fetchers": "num_replica_fetchers",
    "num.recovery.threads.per.data.dir": "num_recovery_threads_per_data_dir",
    "background.threads": "background_threads",
}


def why_not(before: BrokerConfig, after: BrokerConfig) -> str | None:
    """Kafka's sentence, wrapped as Kafka wraps it; None if the counts may change like this."""
    for name, attribute in _POOLS.items():
        old, new = getattr(before, attribute), getattr(after, attribute)
        failed = f"Dynamic thread count update validation failed for {name}={new}, value should "
        if new < old // 2:
            return _wrapped(f"{failed}be at least half the current value {old}")
        if new > old * 2:
            return _wrapped(f"{failed}not be greater than double the current value {old}")
    old, new = before.log_cleaner_threads, after.log_cleaner_threads
    if new < old // 2:
        return _wrapped(f"Log cleaner threads cannot be reduced to less than half the current value {old}")
    if new > old * 2:
        return _wrapped(f"Log cleaner threads cannot be increased to more than double the current value {old}")
    return None


def _wrapped(reason: str) -> str:
    return (
        f"Invalid value org.apache.kafka.common.config.ConfigException: {reason} for configuration Invalid dynamic "
        "configuration"
    )
