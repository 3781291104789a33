"""The arithmetic of the benchmark."""

from __future__ import annotations

import pytest

from bench.stats import Summary, holds, percentile, ratio, summarize


def test_a_summary_is_the_median_and_the_extremes() -> None:
    assert summarize([3.0, 1.0, 8.0]) == Summary(3.0, 1.0, 8.0)
    assert summarize([3.0, 1.0, 8.0]).spread == pytest.approx(7 / 3)


def test_the_spread_of_zeroes_is_zero() -> None:
    assert summarize([0.0, 0.0]).spread == 0


@pytest.mark.parametrize(("percent", "expected"), [(50, 50), (99, 99), (99.9, 100), (100, 100), (1, 1), (0.5, 1)])
def test_a_percentile_is_the_nearest_rank(percent: float, expected: float) -> None:
    assert percentile([float(value) for value in range(100, 0, -1)], percent) == expected


def test_percentiles_of_one_value_are_that_value() -> None:
    assert percentile([7.0], 50) == percentile([7.0], 99.9) == 7.0


def test_a_ratio_compares_medians() -> None:
    assert ratio([2.0, 100.0, 4.0], [2.0, 1.0, 0.0]) == 4.0


def test_nothing_to_divide_by_is_no_ratio() -> None:
    assert ratio([1.0], [0.0]) is None


def test_targets_are_reached_from_their_side() -> None:
    assert holds(1.8, 1.8, "higher") and not holds(1.79, 1.8, "higher")
    assert holds(0.4, 0.4, "lower") and not holds(0.41, 0.4, "lower")
