"""Progress as Spark tells it, and the chart drawn from it."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from pipeline.progress import Progress, append, begin_run, from_spark, line, load
from pipeline.report import html, svg, write_report

SPARK_SAYS = {
    "timestamp": "2026-01-01T00:00:10.500Z",
    "batchId": 3,
    "numInputRows": 40,
    "inputRowsPerSecond": float("inf"),
    "processedRowsPerSecond": 80.0,
    "durationMs": {"triggerExecution": 500},
    "stateOperators": [{"numRowsDroppedByWatermark": 2, "numRowsTotal": 7}],
    "sources": [
        {"endOffset": {"t": {"0": 10, "1": 4}}, "latestOffset": {"t": {"0": 15, "1": 4, "2": 3}}},
        {"endOffset": '{"u": {"0": 1}}', "latestOffset": '{"u": {"0": 2}}'},
        {"endOffset": "not offsets", "latestOffset": None},
    ],
}


def a_run() -> list[Progress]:
    return [
        Progress(query, number, 1000.0 + number, 400, 100, 90.0, 250.0 * (number + 1), 500 - 100 * number, 1, 5)
        for number in range(6)
        for query in ("counts & more", "dead-letters")
    ]


def test_rows_rates_and_lag_come_from_sparks_report() -> None:
    progress = from_spark("counts", SPARK_SAYS)
    assert progress == Progress("counts", 3, 1767225610.5, 500, 40, 0.0, 80.0, 5 + 3 + 1, 2, 7)
    assert line(progress).split() == ["counts", "3", "40", "0", "80", "9", "2", "500"]


def test_runs_are_told_apart_and_a_line_that_a_crash_cut_short_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "progress.jsonl"
    begin_run(path, 1000.0)
    append(path, a_run())
    path.write_text(path.read_text() + '{"query": "cou\n')
    begin_run(path, 2000.0)
    begin_run(path, 3000.0)
    append(path, a_run()[:2])
    assert load(path) == [a_run(), a_run()[:2]], "the run that saw no micro-batch is left out"


def test_the_chart_has_a_line_per_query_and_a_point_per_batch_inside_its_frame() -> None:
    root = ElementTree.fromstring(svg("words", a_run()))
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}polyline")) == 4  # two queries in two panels
    circles = root.findall(f"{space}circle")
    assert len(circles) == 24
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert all(0 < float(one.attrib["cx"]) < width and 0 < float(one.attrib["cy"]) < height for one in circles)
    texts = {text.text for text in root.iter(f"{space}text")}
    assert {"words", "counts & more", "rows per second", "5.4 s"} <= texts
    assert "1,200 rows read by 2 queries in 5.4 s; a point is a micro-batch, at the time it ended" in texts


def test_a_run_of_days_has_readable_points_that_keep_the_peaks() -> None:
    batches = [Progress("q", n, 60.0 * n, 400, 10, 9.0, 250.0, 0, 0, 0) for n in range(5_000)]
    batches[1_234] = Progress("q", 1_234, 60.0 * 1_234, 400, 10, 9.0, 250.0, 1_000, 0, 0)
    space = "{http://www.w3.org/2000/svg}"
    root = ElementTree.fromstring(svg("long", batches))
    rates, lags = (line.attrib["points"].split() for line in root.findall(f"{space}polyline"))
    assert len(rates) == len(lags) <= 400
    heights = [float(point.split(",")[1]) for point in lags]
    assert len(set(heights)) == 2, "one peak, and nothing"
    assert {"0.0 d", "3.5 d"} <= {text.text for text in root.iter(f"{space}text")}


def test_a_run_without_batches_still_gives_a_picture() -> None:
    ElementTree.fromstring(svg("nothing", []))


def test_html_adds_totals(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(path, "words", a_run())
    text = path.read_text()
    assert text == html("words", svg("words", a_run()), a_run())
    assert "<td>counts &amp; more</td><td>6</td><td>600</td><td>250</td><td>500</td><td>0</td><td>6</td>" in text
