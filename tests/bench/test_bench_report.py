"""Rows, table, chart and file of a run whose values are known."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench import chart, report, table
from bench.model import Case, Metric, Row, count_verdicts, rows_of

MACHINE = {"cores": 2, "cpu": "A & B <fast>", "memory_gb": 8.0, "python": "3.11", "kafka": "4.3.1"}
WHEN = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
FASTER = Metric("throughput", "MB/s", "higher", 1.5)
CHEAPER = Metric("broker CPU", "s/GB", "lower", 0.5)


def a_row(metric: Metric, ours: list[float], theirs: list[float], problem: str = "") -> Row:
    return Row("produce", metric, "kafka", {"barnabas": ours, "kafka": theirs}, problem)


def some_rows() -> list[Row]:
    floor = Row("raw produce", Metric("throughput", "MB/s", "higher", 0.7), "floor")
    floor.values = {"barnabas": [60.0], "kafka": [30.0], "floor": [100.0]}
    return [
        a_row(FASTER, [20.0, 30.0, 25.0], [10.0, 11.0, 9.0]),
        a_row(CHEAPER, [6.0, 7.0, 8.0], [10.0, 10.0, 10.0]),
        a_row(Metric("p50", "ms", "lower"), [1.0], [2.0]),
        a_row(CHEAPER, [], [], "the broker <ended>"),
        floor,
    ]


def test_a_row_knows_its_ratio_and_whether_its_target_holds() -> None:
    rows = some_rows()
    assert [row.ratio for row in rows] == [2.5, 0.7, 0.5, None, 0.6]
    assert [row.verdict for row in rows] == ["PASS", "MISSED", "", "FAILED", "MISSED"]
    assert count_verdicts(rows) == {"PASS": 1, "MISSED": 2, "FAILED": 1}


def test_rounds_become_rows() -> None:
    case = Case("a case", (FASTER, CHEAPER), lambda lab, side: {})
    rounds = [{"throughput": 1.0, "broker CPU": 2.0}, {"throughput": 3.0, "broker CPU": 4.0}]
    first, second = rows_of(case, {"kafka": rounds, "barnabas": []})
    assert first.values == {"kafka": [1.0, 3.0], "barnabas": []}
    assert second.values["kafka"] == [2.0, 4.0]
    assert first.ratio is None and first.verdict == ""


def test_a_case_with_a_floor_compares_with_it() -> None:
    case = Case("raw", (FASTER,), lambda lab, side: {}, sides=("kafka", "barnabas", "floor"))
    assert case.baseline == "floor"


def test_the_table_shows_medians_spread_ratio_target_and_verdict() -> None:
    lines = table.render(some_rows()).splitlines()
    first = next(line for line in lines if line.startswith("produce: throughput"))
    assert first.split() == [
        *("produce:", "throughput,", "MB/s", "25.0", "(20.0-30.0)", "10.0", "(9.00-11.0)"),
        *("2.50x", ">=", "1.5x", "PASS"),
    ]
    assert any("FAILED: the broker <ended>" in line for line in lines)
    assert "1 targets hold, 2 are missed, 1 rows were not measured." in lines
    assert "  missed: produce: broker CPU: 0.70x, target <= 0.5x" in lines
    assert any(line.startswith("against the floor") for line in lines)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.01234, "0.0123"), (1.234, "1.23"), (12.34, "12.3"), (123.4, "123"), (12345.6, "12,346")],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert table.number(value) == text


def test_the_chart_is_a_document_with_a_bar_and_a_mark_per_target() -> None:
    text = chart.render(some_rows(), "a < b", "c & d")
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    bars = root.findall(f"{space}rect")
    assert len(bars) == 3
    assert [bar.get("fill") for bar in bars] == [chart.HOLDS, chart.MISSED, chart.MISSED]
    marks = [line for line in root.findall(f"{space}line") if line.get("stroke-width") == "2.5"]
    assert len(marks) == 3


def test_an_empty_chart_is_a_document() -> None:
    ElementTree.fromstring(chart.render([], "nothing", ""))


def test_bars_go_right_when_better() -> None:
    assert chart.better_factor(2, "higher") == 2
    assert chart.better_factor(0.5, "lower") == 2
    scale = chart.Scale([0.5, 4])
    assert scale.x(0.5) < scale.x(1) < scale.x(4)
    assert scale.x(2) - scale.x(1) == pytest.approx(scale.x(4) - scale.x(2))
    assert scale.ticks == [0.5, 1, 2, 4]


def test_results_are_written(tmp_path: Path) -> None:
    values, picture = report.write(some_rows(), MACHINE, quick=True, rounds=3, when=WHEN, directory=tmp_path)
    assert values.name == "2025-01-02-quick.json" and picture.name == "latest.svg"
    found = json.loads(values.read_text())
    assert found["machine"] == MACHINE and found["form"] == "quick"
    assert found["rows"][0]["sides"]["kafka"] == {"rounds": [10.0, 11.0, 9.0], "median": 10.0, "min": 9.0, "max": 11.0}
    assert found["rows"][0]["verdict"] == "PASS"
    assert found["rows"][3]["problem"] == "the broker <ended>"
    ElementTree.fromstring(picture.read_text())
