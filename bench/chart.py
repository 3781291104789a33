"""The chart of a run: one horizontal bar per metric that has a target, on a logarithmic scale of ratios.

Read from the middle line, where Barnabas and what it is compared with are equal: every bar is turned so that to the
right is better (a lower-is-better ratio is inverted for its length, and printed as measured). The short mark is the
target. Colours keep their contrast on white and on black, and shape carries the same information: missed targets
are hollow bars.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from bench.model import Row
from bench.table import ratio_text, target_text

WIDTH = 920
LEFT = 390  # where bars may begin: the names stand before it
RIGHT = 130  # room for ratio and target behind the bars
ROW = 22
BAR = 12
TOP = 78
BOTTOM = 34

GREY = "#7d8590"
HOLDS = "#2f9e62"
MISSED = "#d9772b"

Bar = tuple[float, float]


def better_factor(ratio: float, better: str) -> float:
    """How many times better than the baseline: above 1 is better, whatever the metric."""
    if ratio <= 0:
        return 1.0
    return ratio if better == "higher" else 1 / ratio


class Scale:
    """Maps factors to x; symmetric steps for twice and half, ends at round powers of two."""

    def __init__(self, factors: Sequence[float]) -> None:
        logs = [math.log2(factor) for factor in factors] or [0.0]
        self.low = min(-1, math.floor(min(logs)))
        self.high = max(1, math.ceil(max(logs)))

    def x(self, factor: float) -> float:
        share = (math.log2(factor) - self.low) / (self.high - self.low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    @property
    def ticks(self) -> list[float]:
        return [2.0**power for power in range(self.low, self.high + 1)]


def _text(x: float, y: float, content: str, *, anchor: str = "start", weight: str = "", size: int = 12) -> str:
    bold = f' font-weight="{weight}"' if weight else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"{bold}>{escape(content)}</text>'


def _bar(row: Row, scale: Scale, y: float) -> list[str]:
    assert row.ratio is not None and row.metric.target is not None
    middle, end = scale.x(1), scale.x(better_factor(row.ratio, row.metric.better))
    left, width = min(middle, end), max(abs(end - middle), 1.5)
    holds = row.verdict == "PASS"
    paint = f'fill="{HOLDS}"' if holds else f'fill="{MISSED}" fill-opacity="0.25" stroke="{MISSED}" stroke-width="1.5"'
    target_x = scale.x(better_factor(row.metric.target, row.metric.better))
    top = y + (ROW - BAR) / 2
    baseline = y + ROW / 2 + 4
    beyond = f"{ratio_text(row)} ({target_text(row)})"
    return [
        _text(LEFT - 10, baseline, f"{row.case}: {row.metric.name}", anchor="end"),
        f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{BAR}" {paint}>'
        f"<title>{escape(row.case)}: {escape(row.metric.name)} {escape(beyond)} {row.verdict}</title></rect>",
        f'<line x1="{target_x:.1f}" y1="{top - 3:.1f}" x2="{target_x:.1f}" y2="{top + BAR + 3:.1f}" '
        f'stroke="{GREY}" stroke-width="2.5"/>',
        _text(WIDTH - RIGHT + 8, baseline, beyond, weight="" if holds else "bold"),
    ]


def render(rows: Sequence[Row], title: str, subtitle: str) -> str:
    """An SVG document; rows without a target or without a ratio are left to the table."""
    shown = [row for row in rows if row.metric.target is not None and row.ratio]
    factors = [better_factor(row.ratio or 1, row.metric.better) for row in shown]
    factors += [better_factor(row.metric.target or 1, row.metric.better) for row in shown]
    scale = Scale(factors)
    height = TOP + ROW * len(shown) + BOTTOM
    bottom = TOP + ROW * len(shown)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'font-family="system-ui, sans-serif" fill="{GREY}" role="img">',
        f"<title>{escape(title)}</title>",
        _text(12, 24, title, weight="bold", size=17),
        _text(12, 43, subtitle),
        _text(scale.x(1) - 8, TOP - 22, "worse", anchor="end"),
        _text(scale.x(1) + 8, TOP - 22, "better"),
        _text(WIDTH - RIGHT + 8, TOP - 8, "ratio (target)"),
    ]
    for tick in scale.ticks:
        x = scale.x(tick)
        weight = "1.5" if tick == 1 else "0.5"
        parts.append(
            f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="{GREY}" stroke-width="{weight}"/>'
        )
        parts.append(_text(x, TOP - 6, f"{tick:g}x", anchor="middle", size=10))
    for position, row in enumerate(shown):
        parts += _bar(row, scale, TOP + ROW * position)
    parts.append(
        _text(12, height - 12, "Filled: target holds. Hollow: missed. The short mark is the target; the scale doubles.")
    )
    parts.append("</svg>")
    return "\n".join(parts) + "\n"
