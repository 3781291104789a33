"""Replication throttles (KIP-73): how much may be copied, and which replicas that counts for.

Pure. A quota is a rate over a sliding window, measured as Kafka's SimpleRate does: the bytes of the samples in the
window, divided by the time since the oldest of them began, but by no less than one sample's length. A copy goes on in
bursts: what is read at once may exceed the rate, and nothing more is read until the average is back below it.
"""

from __future__ import annotations

from collections.abc import Container
from functools import lru_cache
from typing import Final

UNLIMITED: Final = 0x7FFFFFFFFFFFFFFF
"""Kafka's default rate; a quota that was never set."""

ALL_REPLICAS: Final = "*"
_MAX_PARTITION: Final = 0x7FFFFFFF


class _Sample:
    __slots__ = ("last_ms", "size", "start_ms")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.start_ms = now_ms
        self.last_ms = now_ms
        self.size = 0


class ReplicationQuota:
    """One direction of one broker: what its leaders send to followers, or what its followers take in."""

    __slots__ = ("_current", "_expire_ms", "_sample_ms", "_samples", "_samples_max", "rate")

    def __init__(self, window_num: int, window_size_seconds: int, rate: int = UNLIMITED) -> None:
        self.rate = rate
        """Bytes a second; change it with `update`."""
        self._sample_ms = window_size_seconds * 1000
        self._expire_ms = window_num * self._sample_ms
        # One more than the window has: the oldest may reach into it with its end only.
        self._samples_max = window_num + 1
        self._samples: list[_Sample] = []
        self._current = 0

    def update(self, rate: int) -> None:
        """Holds at once, also for what was recorded before."""
        self.rate = rate

    def record(self, now_ms: int, size: int) -> None:
        """Bytes that were copied, whether or not there was room for them."""
        sample = self._current_sample(now_ms)
        sample.size += size
        sample.last_ms = now_ms

    def is_exceeded(self, now_ms: int) -> bool:
        return self.rate != UNLIMITED and self.measure(now_ms) > self.rate

    def measure(self, now_ms: int) -> float:
        """Bytes a second."""
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        self._purge(now_ms)
        size = sum(sample.size for sample in self._samples)
        elapsed_ms = now_ms - min(sample.start_ms for sample in self._samples)
        return size * 1000 / max(elapsed_ms, self._sample_ms)

    def allowed_at_ms(self, now_ms: int) -> int:
        """The first moment at which the quota is not exceeded, if nothing more is recorded; `now_ms` if that is now.

        The average falls as time goes by, and in steps when a sample leaves the window.
        """
        if not self.is_exceeded(now_ms):
            return now_ms
        kept = sorted(self._samples, key=lambda sample: sample.last_ms)
        for at, sample in enumerate(kept):
            expires_ms = sample.last_ms + self._expire_ms
            size = sum(left.size for left in kept[at:])
            if not size:
                break
            if self.rate:
                needed_ms = -(-size * 1000 // self.rate)
                started_ms = min(left.start_ms for left in kept[at:])
                allowed_ms = max(now_ms, started_ms + (0 if needed_ms <= self._sample_ms else needed_ms))
                if allowed_ms < expires_ms:
                    return allowed_ms
            now_ms = max(now_ms, expires_ms)
        return now_ms

    def _current_sample(self, now_ms: int) -> _Sample:
        samples = self._samples
        if not samples:
            samples.append(_Sample(now_ms))
        sample = samples[self._current]
        if now_ms - sample.start_ms < self._sample_ms:
            return sample
        self._current = (self._current + 1) % self._samples_max
        if self._current == len(samples):
            samples.append(_Sample(now_ms))
        else:
            samples[self._current].reset(now_ms)
        return samples[self._current]

    def _purge(self, now_ms: int) -> None:
        for sample in self._samples:
            if now_ms - sample.last_ms >= self._expire_ms:
                sample.reset(now_ms)


@lru_cache(maxsize=8)  # the same list is looked at once per partition of a topic
def throttled_partitions(listed: tuple[str, ...], broker: int) -> Container[int]:
    """The partitions whose replica on a broker is in a topic's list: "*", or partition:broker pairs."""
    if ALL_REPLICAS in listed:
        return range(_MAX_PARTITION + 1)
    pairs = (pair.split(":") for pair in listed if pair)
    return frozenset(int(partition) for partition, replica in pairs if int(replica) == broker)
