"""The picture of a run: throughput and lag over time, one line per query, as SVG or as a small HTML page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from pipeline.progress import Progress

WIDTH, LEFT, RIGHT = 900, 80, 30
PANEL, GAP, TOP = 190, 60, 88
MOST_POINTS = 400  # of a line: as many as one can tell apart in its width
COLOURS = ("#2f7ed8", "#d9772b", "#2f9e62", "#8f5fbf", "#c2405a", "#7d8590")
GREY = "#7d8590"


def write_report(path: Path, title: str, progress: Sequence[Progress]) -> None:
    drawn = svg(title, progress)
    path.write_text(drawn if path.suffix == ".svg" else html(title, drawn, progress))


def queries(progress: Sequence[Progress]) -> list[str]:
    return list(dict.fromkeys(one.query for one in progress))


def svg(title: str, progress: Sequence[Progress]) -> str:
    """Two panels on one time axis. Each point is a micro-batch, at the time it ended."""
    names = queries(progress)
    begin = min((one.time_s for one in progress), default=0.0)
    end = max((_ended(one) for one in progress), default=begin + 1)
    height = TOP + 2 * PANEL + GAP + 60
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        _text(LEFT, 24, title, size=16),
    ]
    x = LEFT
    for number, name in enumerate(names):
        parts.append(f'<rect x="{x}" y="38" width="12" height="12" fill="{COLOURS[number % len(COLOURS)]}"/>')
        parts.append(_text(x + 17, 48, name))
        x += 40 + 7 * len(name)
    span = max(end - begin, 0.001)
    panels: list[tuple[str, Callable[[Progress], float]]] = [
        ("rows per second", lambda one: one.processed_rate),
        ("lag (records not read yet)", lambda one: float(one.lag)),
    ]
    for number, (label, measure) in enumerate(panels):
        top = TOP + number * (PANEL + GAP)
        parts += _panel(label, top, names, progress, measure, begin, span)
    bottom = TOP + 2 * PANEL + GAP
    for step in range(6):
        at = LEFT + step / 5 * (WIDTH - LEFT - RIGHT)
        parts.append(_text(at, bottom + 18, _duration(span * step / 5, span), anchor="middle"))
    read = f"{sum(one.input_rows for one in progress):,} rows read by {len(names)} queries in {_duration(span, span)}"
    parts.append(_text(LEFT, bottom + 42, f"{read}; a point is a micro-batch, at the time it ended"))
    return "\n".join([*parts, "</svg>\n"])


def _panel(
    label: str,
    top: int,
    names: Sequence[str],
    progress: Sequence[Progress],
    measure: Callable[[Progress], float],
    begin: float,
    span: float,
) -> list[str]:
    highest = _round_up(max((measure(one) for one in progress), default=1.0))
    parts = [_text(LEFT, top - 8, label)]
    for step in range(5):
        y = top + PANEL - step / 4 * PANEL
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{GREY}" opacity="0.25"/>'
        )
        parts.append(_text(LEFT - 8, y + 4, _short(highest * step / 4), anchor="end"))
    for number, name in enumerate(names):
        colour = COLOURS[number % len(COLOURS)]
        points = [
            (
                LEFT + (_ended(one) - begin) / span * (WIDTH - LEFT - RIGHT),
                top + PANEL - measure(one) / highest * PANEL,
            )
            for one in progress
            if one.query == name
        ]
        points = _thinned(points)
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2" fill="{colour}"/>' for x, y in points]
    return parts


def _thinned(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of neighbours that would lie on top of each other, the highest: a peak must not vanish."""
    together = math.ceil(len(points) / MOST_POINTS)
    if together <= 1:
        return points
    return [min(points[at : at + together], key=lambda point: point[1]) for at in range(0, len(points), together)]


def html(title: str, drawn: str, progress: Sequence[Progress]) -> str:
    rows = []
    for name in queries(progress):
        own = [one for one in progress if one.query == name]
        busy_s = sum(one.duration_ms for one in own) / 1000
        total = sum(one.input_rows for one in own)
        cells = [
            escape(name),
            f"{len(own):,}",
            f"{total:,}",
            f"{total / busy_s if busy_s else 0:,.0f}",
            f"{max(one.lag for one in own):,}",
            f"{own[-1].lag:,}",
            f"{sum(one.late_rows for one in own):,}",
        ]
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    heads = "".join(
        f"<th>{head}</th>" for head in ("query", "batches", "rows", "rows/s", "most lag", "lag at the end", "late rows")
    )
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        "<style>body{font-family:sans-serif;margin:2em}td,th{padding:.2em 1em;text-align:right}"
        "td:first-child,th:first-child{text-align:left}</style></head><body>\n"
        f"{drawn}<table><tr>{heads}</tr>\n" + "\n".join(rows) + "</table></body></html>\n"
    )


def _ended(one: Progress) -> float:
    return one.time_s + one.duration_ms / 1000


def _duration(seconds: float, span: float) -> str:
    """In the unit that suits the whole axis."""
    for limit, unit in ((2 * 86_400, "d"), (2 * 3_600, "h"), (120, "min")):
        if span >= limit:
            return f"{seconds / (limit / 2):.1f} {unit}"
    return f"{seconds:.1f} s"


def _round_up(value: float) -> float:
    """The next of 1, 2, 5 times a power of ten, so that the axis has readable steps."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def _short(value: float) -> str:
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:g}{unit}"
    return f"{value:g}"


def _text(x: float, y: float, content: str, *, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(content)}</text>'
