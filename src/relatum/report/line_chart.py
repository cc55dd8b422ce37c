"""Line charts: the geometry that `templates/chart.html` draws as SVG; page.js adds the values on hover.

A long series is cut into at most `BINS` parts: the line is the mean of each part, the band spans minimum and maximum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relatum.report.formatting import axis_number
from relatum.report.page import Panel

BINS = 240
WIDTH, HEIGHT = 420, 250
LEFT, RIGHT, TOP, BOTTOM = 50, 12, 12, 34


@dataclass(frozen=True)
class Series:
    """A line: its name, the number of its colour (CSS --s0, --s1, ...), and its points."""

    name: str
    colour: int
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    end: float


def series(name: str, colour: int, x: NDArray[np.float64], y: NDArray[np.float64]) -> Series | None:
    """A line of at most `BINS` points, or None if there is nothing to draw."""
    usable = np.isfinite(x) & (np.abs(y) < 1e30)  # a diverged loss fits no axis
    x, y = x[usable], y[usable]
    if len(x) == 0:
        return None
    parts = np.array_split(np.arange(len(x)), min(BINS, len(x)))
    means = [np.array([values[part].mean() for part in parts]) for values in (x, y)]
    low, high = np.array([y[part].min() for part in parts]), np.array([y[part].max() for part in parts])
    return Series(name, colour, means[0], means[1], low, high, float(x[-1]))


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round values (1, 2, 2.5 or 5 times a power of ten) that cover [low, high] in at most `most` steps."""
    if not high > low:
        high = low + (abs(low) or 1.0)
    raw = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * (1 - 1e-9))
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def line_chart(
    title: str,
    lines: Sequence[Series],
    *,
    x_label: str,
    bounds: tuple[float, float] | None = None,
    legend: bool = False,
) -> tuple[Panel, dict[str, Any]]:
    """The data of the template for a chart with its legend, table and values on hover.

    Args:
        title: what is drawn.
        lines: at least one.
        x_label: `epoch` or `step`.
        bounds: the range of the y axis; by default that of the lines, with outliers of the band clipped.
        legend: name the lines even if there is only one.
    """
    if bounds is None:
        # The first steps of a loss can dwarf all others: the axis follows the lines, and the band is clipped.
        bounds = (min(float(s.y.min()) for s in lines), max(float(s.y.max()) for s in lines))
    ys = ticks(*bounds)
    x_high = max(s.end for s in lines)
    xs = [t for t in ticks(0, x_high) if t <= x_high * 1.0001]
    x_max = max(x_high, xs[-1]) or 1.0
    y_range = (ys[-1] - ys[0]) or 1.0  # values too small for two different ticks
    left, right, top, bottom = LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM

    def px(x: Any) -> Any:
        return left + (right - left) * x / x_max

    def py(y: Any) -> Any:
        return top + (bottom - top) * (ys[-1] - np.clip(y, ys[0], ys[-1])) / y_range

    def drawn(s: Series) -> Panel:
        has_band = len(s.x) > 1 and bool((s.high > s.low).any())
        return {
            "name": s.name,
            "colour": s.colour,
            "first": axis_number(float(s.y[0])),
            "last": axis_number(float(s.y[-1])),
            "points": [f"{x:.1f},{y:.1f}" for x, y in zip(px(s.x), py(s.y), strict=True)],
            "dot": (f"{px(s.x[0]):.1f}", f"{py(s.y[0]):.1f}"),
            "band": _outline(px(s.x), py(s.low), py(s.high)) if has_band else "",
        }

    panel = {
        "title": title,
        "x_label": x_label,
        "size": (WIDTH, HEIGHT),
        "plot": (left, right, top, bottom),
        "x_ticks": [(f"{px(x):.1f}", axis_number(x)) for x in xs],
        "y_ticks": [(f"{py(y):.1f}", axis_number(y)) for y in ys],
        "lines": [drawn(s) for s in lines],
        "legend": legend or len(lines) > 1,
        "table": _table(lines),
    }
    data = {
        "plot": [left, right, top, bottom],
        "x": [0.0, x_max],
        "y": [ys[0], ys[-1]],
        "label": x_label,
        "lines": [{"name": s.name, "colour": s.colour, "x": _round(s.x), "y": _round(s.y)} for s in lines],
    }
    return panel, data


def _outline(x: NDArray[np.float64], low: NDArray[np.float64], high: NDArray[np.float64]) -> str:
    there, back = zip(x, high, strict=True), zip(x[::-1], low[::-1], strict=True)
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in (*there, *back))


def _table(lines: Sequence[Series]) -> list[tuple[str, list[str]]]:
    """The values at up to eleven places, for screen readers and for copying."""
    longest = max(lines, key=lambda s: len(s.x))
    places = np.linspace(0, len(longest.x) - 1, min(11, len(longest.x))).round().astype(int)
    return [(axis_number(x), [_value_at(s, x) for s in lines]) for x in longest.x[places].tolist()]


def _value_at(s: Series, x: float) -> str:
    """The value of a line nearest to `x`, or a dash beyond its end."""
    nearest = int(np.abs(s.x - x).argmin())
    span = float(s.x[-1] - s.x[0]) / max(1, len(s.x) - 1)
    near = abs(float(s.x[nearest]) - x) <= max(span, 1e-9) * 1.01
    return axis_number(float(s.y[nearest])) if near else "–"


def _round(values: NDArray[np.float64]) -> list[float]:
    return [float(f"{value:.5g}") for value in values]
