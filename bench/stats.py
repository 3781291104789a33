"""Medians, spreads, percentiles and ratios: the arithmetic of a benchmark, apart from everything that measures."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Better = Literal["higher", "lower"]


@dataclass(frozen=True, slots=True)
class Summary:
    """The rounds of one measurement: the middle, and how far apart the rounds were."""

    median: float
    low: float
    high: float

    @property
    def spread(self) -> float:
        """Distance of the extremes relative to the median; 0.1 says that the rounds lie within 10 %."""
        return (self.high - self.low) / self.median if self.median else 0.0


def summarize(values: Sequence[float]) -> Summary:
    return Summary(statistics.median(values), min(values), max(values))


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that `percent` % of all do not exceed (nearest rank): always one that was measured."""
    ordered = sorted(values)
    rank = max(1, math.ceil(len(ordered) * percent / 100))
    return ordered[rank - 1]


def ratio(ours: Sequence[float], other: Sequence[float]) -> float | None:
    """Median over median; None where there is nothing to divide by."""
    below = statistics.median(other)
    return statistics.median(ours) / below if below else None


def holds(value: float, target: float, better: Better) -> bool:
    """Whether a ratio reaches its target: from above where more is better, from below where less is."""
    return value >= target if better == "higher" else value <= target
