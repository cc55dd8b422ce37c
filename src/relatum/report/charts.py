"""Line charts as static SVG: readable axes, one colour per line; page.js adds the values on hover.

A long run is cut into at most `BINS` parts; the line is each part's mean, the band behind it spans minimum and maximum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relatum.report.markup import Html, el
from relatum.report.words import short

BINS = 240
WIDTH, HEIGHT = 420, 250
LEFT, RIGHT, TOP, BOTTOM = 50, 12, 12, 34


@dataclass(frozen=True)
class Series:
    """A line: its name, the number of its colour (CSS --s0, --s1, ...), and where it goes."""

    name: str
    colour: int
    x: NDArray[np.float64]
    y: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    end: float
    dashed: bool = False


def series(
    name: str, colour: int, x: NDArray[np.float64], y: NDArray[np.float64], dashed: bool = False
) -> Series | None:
    """A line of at most `BINS` points, or None where there is nothing to draw."""
    there = np.isfinite(x) & (np.abs(y) < 1e30)  # a loss that has gone that far has no place on any axis
    x, y = x[there], y[there]
    if len(x) == 0:
        return None
    parts = np.array_split(np.arange(len(x)), min(BINS, len(x)))
    means = [np.array([values[part].mean() for part in parts]) for values in (x, y)]
    low, high = np.array([y[part].min() for part in parts]), np.array([y[part].max() for part in parts])
    return Series(name, colour, means[0], means[1], low, high, float(x[-1]), dashed)


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
    unit: str = "",
    bounds: tuple[float, float] | None = None,
    keys: bool = False,
) -> tuple[Html, dict[str, Any]]:
    """A chart with its legend and its figures as a table, and the data that hovering needs.

    Args:
        title: what is drawn.
        lines: at least one.
        x_label: `epoch` or `step`.
        unit: of the values, for the title: `%`.
        keys: name the lines even where there is only one.
        bounds: the range of the y axis; by default that of the lines, with outliers of the band cut off.
    """
    if bounds is None:
        # The first steps of a loss can dwarf all others: the axis follows the lines, the band is clipped.
        bounds = (min(float(s.y.min()) for s in lines), max(float(s.y.max()) for s in lines))
    ys = ticks(*bounds)
    x_high = max(s.end for s in lines)
    xs = [t for t in ticks(0, x_high) if t <= x_high * 1.0001]
    x_max = max(x_high, xs[-1]) or 1.0

    def px(x: Any) -> Any:
        return LEFT + (WIDTH - LEFT - RIGHT) * x / x_max

    def py(y: Any) -> Any:
        return TOP + (HEIGHT - TOP - BOTTOM) * (ys[-1] - np.clip(y, ys[0], ys[-1])) / (ys[-1] - ys[0])

    svg = el(
        "svg",
        _axes(xs, ys, px, py, x_label),
        [_band(s, px, py) for s in lines],
        [_line(s, px, py) for s in lines],
        el("line", class_="cursor", x1=0, x2=0, y1=TOP, y2=HEIGHT - BOTTOM, visibility="hidden"),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=_summary(title, lines, x_label),
    )
    heading = el("h3", title, el("span", f" {unit}", class_="unit") if unit else None)
    legend = el("ul", [_key(s) for s in lines], class_="keys") if keys or len(lines) > 1 else None
    figure = el("figure", heading, svg, legend, _figures(lines, x_label), class_="chart")
    plot = [LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM]
    data = {
        "plot": plot,
        "x": [0.0, x_max],
        "y": [ys[0], ys[-1]],
        "label": x_label,
        "lines": [{"name": s.name, "colour": s.colour, "x": _round(s.x), "y": _round(s.y)} for s in lines],
    }
    return figure, data


def _axes(xs: list[float], ys: list[float], px: Any, py: Any, x_label: str) -> list[Html]:
    parts = []
    for y in ys:
        at = f"{float(py(y)):.1f}"
        parts.append(el("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at))
        parts.append(el("text", short(y), x=LEFT - 7, y=at, class_="tick", text_anchor="end", dy="0.32em"))
    base = HEIGHT - BOTTOM
    for x in xs:
        at = f"{float(px(x)):.1f}"
        parts.append(el("line", class_="grid", x1=at, x2=at, y1=base, y2=base + 4))
        parts.append(el("text", short(x), x=at, y=base + 16, class_="tick", text_anchor="middle"))
    parts.append(el("text", x_label, x=WIDTH - RIGHT, y=HEIGHT - 3, class_="tick axis", text_anchor="end"))
    return parts


def _path(x: NDArray[np.float64], y: NDArray[np.float64]) -> str:
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))


def _line(s: Series, px: Any, py: Any) -> Html:
    colour = f"--c:var(--s{s.colour})"
    if len(s.x) == 1:
        return el("circle", class_="line", cx=f"{px(s.x[0]):.1f}", cy=f"{py(s.y[0]):.1f}", r=3, style=colour)
    return el("polyline", class_="line dashed" if s.dashed else "line", points=_path(px(s.x), py(s.y)), style=colour)


def _band(s: Series, px: Any, py: Any) -> Html | None:
    if len(s.x) < 2 or not (s.high > s.low).any():
        return None
    outline = _path(np.concatenate([px(s.x), px(s.x)[::-1]]), np.concatenate([py(s.high), py(s.low)[::-1]]))
    return el("polygon", class_="band", points=outline, style=f"--c:var(--s{s.colour})")


def _key(s: Series) -> Html:
    swatch = el("i", class_="dash" if s.dashed else None, style=f"--c:var(--s{s.colour})")
    last = el("b", short(float(s.y[-1])))
    return el("li", swatch, el("bdi", s.name), " ", last)


def _summary(title: str, lines: Sequence[Series], x_label: str) -> str:
    parts = [f"{s.name}: from {short(float(s.y[0]))} to {short(float(s.y[-1]))}" for s in lines]
    return f"{title} over {x_label}s. {'; '.join(parts)}."


def _figures(lines: Sequence[Series], x_label: str) -> Html:
    """The same in numbers, at eleven places: for screen readers, for copying."""
    head = el("tr", el("th", x_label, scope="col"), [el("th", s.name, scope="col") for s in lines])
    places = np.linspace(0, max(len(s.x) for s in lines) - 1, min(11, max(len(s.x) for s in lines))).round().astype(int)
    longest = max(lines, key=lambda s: len(s.x))
    rows = []
    for place in places:
        x = float(longest.x[place])
        cells = [el("td", _at(s, x)) for s in lines]
        rows.append(el("tr", el("th", short(x), scope="row"), cells))
    table = el("table", el("thead", head), el("tbody", rows), class_="figures")
    return el("details", el("summary", "In numbers"), el("div", table, class_="scroll"))


def _at(s: Series, x: float) -> str:
    """A line's value nearest to `x`, or a dash where it has ended."""
    nearest = int(np.abs(s.x - x).argmin())
    span = float(s.x[-1] - s.x[0]) / max(1, len(s.x) - 1)
    return short(float(s.y[nearest])) if abs(float(s.x[nearest]) - x) <= max(span, 1e-9) * 1.01 else "–"


def _round(values: NDArray[np.float64]) -> list[float]:
    return [float(f"{value:.5g}") for value in values]
