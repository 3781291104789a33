"""The table of a run, as text: one line per metric, grouped by what it is compared with."""

from __future__ import annotations

from collections.abc import Sequence

from bench.model import Row, SideName, count_verdicts

_NAME_WIDTH = 50
_VALUE_WIDTH = 23
_PROBLEM_WIDTH = 90


def number(value: float) -> str:
    """Three significant digits, thousands with a comma: what a noisy figure deserves."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    if abs(value) >= 1:
        return f"{value:.2f}"
    return f"{value:.3g}"


def _cell(row: Row, side: SideName) -> str:
    """Median and, in brackets, the least and the greatest round."""
    found = row.summary(side)
    if found is None:
        return "-"
    if found.low == found.high:
        return number(found.median)
    return f"{number(found.median)} ({number(found.low)}-{number(found.high)})"


def target_text(row: Row) -> str:
    if row.metric.target is None:
        return ""
    sign = ">=" if row.metric.better == "higher" else "<="
    return f"{sign} {row.metric.target:g}x"


def ratio_text(row: Row) -> str:
    return "-" if row.ratio is None else f"{row.ratio:.2f}x"


def _line(name: str, first: str, second: str, third: str, ratio: str, target: str, verdict: str) -> str:
    cells = f"{first:>{_VALUE_WIDTH}}{second:>{_VALUE_WIDTH}}{third:>{_VALUE_WIDTH}}" if third else ""
    cells = cells or f"{first:>{_VALUE_WIDTH}}{second:>{_VALUE_WIDTH}}"
    return f"{name:<{_NAME_WIDTH}}{cells}{ratio:>9}{target:>10}  {verdict}".rstrip()


def _section(rows: Sequence[Row], *, with_floor: bool) -> list[str]:
    if not rows:
        return []
    floor = "floor" if with_floor else ""
    head = _line(
        "against the floor" if with_floor else "against Apache Kafka",
        "Barnabas",
        "Apache Kafka",
        floor,
        "ratio",
        "target",
        "",
    )
    lines = [head, "-" * len(head)]
    for row in rows:
        name = f"{row.case}: {row.metric.name}, {row.metric.unit}"
        if row.problem:
            lines.append(f"{name:<{_NAME_WIDTH}}FAILED: {row.problem[:_PROBLEM_WIDTH]}")
            continue
        third = _cell(row, "floor") if with_floor else ""
        cells = (_cell(row, "barnabas"), _cell(row, "kafka"), third)
        lines.append(_line(name, *cells, ratio_text(row), target_text(row), row.verdict))
    return lines


def render(rows: Sequence[Row]) -> str:
    """The whole table, and at its end which targets are missed."""
    against_kafka = [row for row in rows if row.baseline == "kafka"]
    against_floor = [row for row in rows if row.baseline == "floor"]
    lines = _section(against_kafka, with_floor=False)
    floor_lines = _section(against_floor, with_floor=True)
    if floor_lines:
        lines += ["", *floor_lines]
    counts = count_verdicts(rows)
    lines += [
        "",
        f"{counts['PASS']} targets hold, {counts['MISSED']} are missed, {counts['FAILED']} rows were not measured.",
    ]
    for row in rows:
        if row.verdict == "MISSED":
            lines.append(f"  missed: {row.case}: {row.metric.name}: {ratio_text(row)}, target {target_text(row)}")
    lines.append("Values are medians of the rounds with the least and the greatest in brackets.")
    return "\n".join(lines)
