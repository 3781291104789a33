"""The quota of replication throttles: a rate over a sliding window, and which replicas it counts for."""

from __future__ import annotations

import random

import pytest
from py4j.java_gateway import JavaGateway

from broker.replication.throttle import UNLIMITED, ReplicationQuota, throttled_partitions

WINDOW_NUM, WINDOW_SECONDS = 11, 1


def a_quota(rate: int = UNLIMITED) -> ReplicationQuota:
    return ReplicationQuota(WINDOW_NUM, WINDOW_SECONDS, rate)


def random_history(seed: int) -> list[tuple[int, int | None]]:
    """Times, and the bytes recorded then; None to look only."""
    rng = random.Random(seed)
    now, history = rng.randrange(10**6), []
    for _ in range(60):
        now += rng.choice((0, 1, 10, 300, 999, 1000, 1001, 4000, 11_000, 12_345))
        history.append((now, rng.choice((None, 1, 1000, 1_000_000))))
    return history


@pytest.mark.stock
def test_rate_is_what_apache_kafka_measures(jvm: JavaGateway) -> None:
    metrics = jvm.jvm.org.apache.kafka.common.metrics
    seconds = jvm.jvm.java.util.concurrent.TimeUnit.SECONDS
    config = metrics.MetricConfig().samples(WINDOW_NUM).timeWindow(WINDOW_SECONDS, seconds)
    for seed in range(5):
        stock, ours = metrics.stats.SimpleRate(), a_quota()
        for now, size in random_history(seed):
            if size is not None:
                stock.record(config, float(size), now)
                ours.record(now, size)
            assert ours.measure(now) == pytest.approx(stock.measure(config, now)), (seed, now)


def test_nothing_is_exceeded_without_a_rate() -> None:
    quota = a_quota()
    quota.record(0, 10**12)
    assert not quota.is_exceeded(0)
    assert quota.allowed_at_ms(0) == 0


def test_a_burst_is_paid_for_with_a_pause() -> None:
    quota = a_quota(rate=1000)
    quota.record(5, 1000)
    assert not quota.is_exceeded(5)
    quota.record(5, 4000)
    assert quota.is_exceeded(5)
    assert quota.allowed_at_ms(5) == 5005
    assert quota.is_exceeded(5004)
    assert not quota.is_exceeded(5005)


def test_a_change_of_the_rate_counts_at_once() -> None:
    quota = a_quota(rate=10)
    quota.record(0, 1000)
    assert quota.is_exceeded(0)
    quota.update(1000)
    assert not quota.is_exceeded(0)
    quota.update(10)
    assert quota.is_exceeded(0)
    quota.update(UNLIMITED)
    assert not quota.is_exceeded(0)


def test_what_left_the_window_is_forgotten() -> None:
    quota = a_quota(rate=1)
    quota.record(0, 10**9)
    assert quota.allowed_at_ms(0) == WINDOW_NUM * 1000
    assert not quota.is_exceeded(WINDOW_NUM * 1000)


def test_rate_zero_lets_through_what_was_not_recorded() -> None:
    quota = a_quota(rate=0)
    assert not quota.is_exceeded(0)
    quota.record(0, 1)
    assert quota.allowed_at_ms(0) == WINDOW_NUM * 1000


@pytest.mark.parametrize("rate", [0, 100, 50_000, 400_000])
def test_the_moment_that_is_told_is_the_first(rate: int) -> None:
    """Compared with a naive twin that looks at every millisecond."""
    for seed in range(8):
        quota = a_quota(rate)
        for now, size in random_history(seed)[:20]:
            if size is not None:
                quota.record(now, size)
        allowed = quota.allowed_at_ms(now)
        assert now <= allowed <= now + WINDOW_NUM * 1000
        step = 1 if seed < 2 else 37
        assert all(quota.is_exceeded(at) for at in range(now, allowed, step)), seed
        assert not quota.is_exceeded(allowed), seed


@pytest.mark.parametrize(
    ("listed", "index", "broker", "expected"),
    [
        ((), 0, 1, False),
        (("",), 0, 1, False),
        (("*",), 7, 1, True),
        (("0:1", "1:2"), 0, 1, True),
        (("0:1", "1:2"), 1, 2, True),
        (("0:1", "1:2"), 1, 1, False),
        (("10:1",), 0, 1, False),
    ],
)
def test_which_replicas_are_throttled(listed: tuple[str, ...], index: int, broker: int, expected: bool) -> None:
    assert (index in throttled_partitions(listed, broker)) is expected
