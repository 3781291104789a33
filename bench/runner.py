"""Runs the cases: rounds that alternate between the sides, a limit of time for each, and never a hanging run."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from bench.lab import Lab
from bench.model import Case, Row, SideName, rows_of
from bench.table import number

CASE_LIMIT_S = {True: 60, False: 900}  # by `quick`; a case that takes longer has gone wrong


class OutOfTime(RuntimeError):
    pass


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Interrupts even a blocking read: of the clients' JVM, say, when a broker has stopped to answer."""

    def on_alarm(signum: int, frame: FrameType | None) -> None:
        raise OutOfTime(f"not done within {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Runner:
    """`budget_s` bounds the whole run: cases that would begin after it are reported as not run."""

    def __init__(self, lab: Lab, *, rounds: int, budget_s: float) -> None:
        self._lab = lab
        self._rounds = rounds
        self._end = time.monotonic() + budget_s
        self._begin = time.monotonic()

    def run(self, cases: Sequence[Case]) -> list[Row]:
        rows: list[Row] = []
        for position, case in enumerate(cases, 1):
            left = self._end - time.monotonic()
            if left <= 0:
                rows += rows_of(case, {}, "not run: the time was up")
                continue
            self._say(f"[{position}/{len(cases)}] {case.name}")
            rows += self._run_case(case, min(left + 5, CASE_LIMIT_S[self._lab.quick]))
        return rows

    def _run_case(self, case: Case, limit_s: float) -> list[Row]:
        results: dict[SideName, list[Mapping[str, float]]] = {side: [] for side in case.sides}
        problem = ""
        try:
            with time_limit(limit_s):
                self._measure(case, results)
        except Exception as failure:  # one broken case must not cost the others
            problem = f"{type(failure).__name__}: {failure}".splitlines()[0]
            self._say(f"    FAILED: {problem}")
            self._lab.java.close()  # whatever still runs in there would disturb the next case
        finally:
            self._finish(case)
        return rows_of(case, results, problem)

    def _measure(self, case: Case, results: Mapping[SideName, list[Mapping[str, float]]]) -> None:
        sides = [self._lab.sides[name] for name in case.sides]
        for side in sides:
            if case.prepare is not None:
                case.prepare(self._lab, side)
        warm_ups = case.warm_ups if self._lab.quick else case.warm_ups * 2  # a JVM keeps compiling for a while
        for number_of_round in range(-warm_ups, self._rounds):
            for side in sides:
                self._lab.settle()
                values = case.run(self._lab, side)
                if number_of_round >= 0:
                    results[side.name].append(values)
                    self._say(f"    round {number_of_round + 1} {side.name:<9} {_brief(case, values)}")

    def _finish(self, case: Case) -> None:
        for name in case.sides:
            if case.finish is not None and name in self._lab.sides:
                try:
                    case.finish(self._lab, self._lab.sides[name])
                except Exception as failure:
                    self._say(f"    cleaning up after {case.name}: {failure}")

    def _say(self, text: str) -> None:
        self._lab.say(f"{time.monotonic() - self._begin:6.0f} s  {text}")


def _brief(case: Case, values: Mapping[str, float]) -> str:
    units = {metric.name: metric.unit for metric in case.metrics}
    return ", ".join(f"{name} {number(value)} {units.get(name, '')}".rstrip() for name, value in values.items())
