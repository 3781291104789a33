"""What a benchmark consists of: cases, what they measure, and the values of a run.

A case is run once per round and side; each run returns one value per metric. `kafka` is what Barnabas is compared
with, except for the cases that have a `floor`: those compare with the floor and show Apache Kafka beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from bench.stats import Better, Summary, holds, ratio, summarize

if TYPE_CHECKING:
    from bench.lab import Lab, Side

SideName = Literal["barnabas", "kafka", "floor"]
Verdict = Literal["PASS", "MISSED", "FAILED", ""]


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table. `target` is the ratio to reach; None for what is only shown."""

    name: str
    unit: str
    better: Better
    target: float | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """`run` measures one round on one side. `prepare` and `finish` frame all rounds of a side, outside the clock.

    `quick` says that the short form takes part in it. `warm_ups` rounds are run and thrown away, twice
    as many in the full form.
    """

    name: str
    metrics: tuple[Metric, ...]
    run: Callable[[Lab, Side], Mapping[str, float]]
    prepare: Callable[[Lab, Side], None] | None = None
    finish: Callable[[Lab, Side], None] | None = None
    sides: tuple[SideName, ...] = ("kafka", "barnabas")
    quick: bool = True
    warm_ups: int = 1

    @property
    def baseline(self) -> SideName:
        return "floor" if "floor" in self.sides else "kafka"


@dataclass(slots=True)
class Row:
    """A metric with what was measured: per side the value of every round."""

    case: str
    metric: Metric
    baseline: SideName
    values: dict[SideName, list[float]] = field(default_factory=dict)
    problem: str = ""

    def summary(self, side: SideName) -> Summary | None:
        values = self.values.get(side)
        return summarize(values) if values else None

    @property
    def ratio(self) -> float | None:
        """Barnabas over its baseline."""
        ours, other = self.values.get("barnabas"), self.values.get(self.baseline)
        return ratio(ours, other) if ours and other else None

    @property
    def verdict(self) -> Verdict:
        if self.problem:
            return "FAILED"
        if self.metric.target is None or self.ratio is None:
            return ""
        return "PASS" if holds(self.ratio, self.metric.target, self.metric.better) else "MISSED"

    def as_json(self) -> dict[str, Any]:
        sides: dict[str, Any] = {}
        for side, values in self.values.items():
            found = summarize(values) if values else None
            if found is not None:
                sides[side] = {"rounds": values, "median": found.median, "min": found.low, "max": found.high}
        return {
            "case": self.case,
            "metric": self.metric.name,
            "unit": self.metric.unit,
            "better": self.metric.better,
            "target": self.metric.target,
            "baseline": self.baseline,
            "ratio": self.ratio,
            "verdict": self.verdict,
            "problem": self.problem,
            "sides": sides,
        }


def rows_of(case: Case, rounds: Mapping[SideName, Sequence[Mapping[str, float]]], problem: str = "") -> list[Row]:
    """Turns what the rounds returned into rows. A metric that a side did not measure stays without values there."""
    rows = []
    for metric in case.metrics:
        row = Row(case.name, metric, case.baseline, problem=problem)
        for side, results in rounds.items():
            row.values[side] = [result[metric.name] for result in results if metric.name in result]
        rows.append(row)
    return rows


def count_verdicts(rows: Sequence[Row]) -> dict[str, int]:
    counts = {"PASS": 0, "MISSED": 0, "FAILED": 0}
    for row in rows:
        if row.verdict:
            counts[row.verdict] += 1
    return counts
