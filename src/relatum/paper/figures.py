"""The paper's figures, as PNG and SVG: our results in full colour, the paper's values in outline.

`draw` dispatches by name. Bars and lines are here; figures made of images and maps are in `qualitative`. matplotlib is
imported when something is drawn.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from relatum.drawing import GREY, METHODS
from relatum.paper import compute, published, qualitative
from relatum.paper.cells import Cell, Planned, Sheet
from relatum.paper.measured import NOTHING, Results, Score, scores
from relatum.paper.published import Row

SMALL: dict[str, Any] = {"fontsize": 7.5, "color": GREY}
PAPER_MARK: dict[str, Any] = {"marker": "D", "markersize": 4.5, "markerfacecolor": "white", "markeredgecolor": "black"}
Draw = Callable[[Planned, Results, Any], None]
Scores = Mapping[tuple[str, str], tuple[Cell, Score]]  # by the keys of row and column


def draw(planned: Planned, results: Results, folder: str | Path) -> list[Path]:
    """Draw a figure into `folder`; returns the files written, none for a table of the paper.

    Args:
        planned: a figure of a plan.
        results: where our values come from.
        folder: where `NAME.png` and `NAME.svg` go.
    """
    drawers: Mapping[str, Draw] = {
        "fig-depth": _depth,
        "fig-augmentations": _augmentations,
        "fig-semi-supervised": _semi_supervised,
        "retrieval-errors": qualitative.retrieval_errors,
        "retrieval": qualitative.retrieval,
        "tsne": qualitative.tsne,
        "tsne-super": qualitative.tsne_super,
        "modern": compute.accuracy_over_compute,
    }
    if planned.name not in drawers:
        return []
    import matplotlib

    # Text stays text in the SVG, and the same results give the same file.
    style: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "relatum",
        "font.size": 9,
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
    }
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever the user's matplotlibrc says
        matplotlib.rcParams.update(style)
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas

        canvas = Canvas(layout="constrained", dpi=160)
        FigureCanvasAgg(canvas)
        drawers[planned.name](planned, results, canvas)
        _headline(canvas, planned)
        paths = [Path(folder) / f"{planned.name}.{ending}" for ending in ("png", "svg")]
        Path(folder).mkdir(parents=True, exist_ok=True)
        canvas.savefig(paths[0])
        canvas.savefig(paths[1], metadata={"Date": None})
    return paths


# -------------------------------------------------------------------------------------------------------------- helpers


def _tidy(axes: Any) -> None:
    """Two spines, and a faint grid behind the data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#999999")
    axes.grid(axis="y", color="#E4E4E4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(color="#999999")


def _legend(canvas: Any, rows: Sequence[Row], has_results: bool, *, bars: bool = False) -> None:
    """Below the graphs: the methods' colours, and the signs for our values and the paper's."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    ours = "this implementation" + ("" if has_results else " (no runs yet)")
    marks: list[Any] = []
    for row in rows:
        colour, marker = METHODS[row.key]
        marks.append(
            Patch(color=colour, label=row.title)
            if bars
            else Line2D([], [], color=colour, marker=marker, label=row.title)
        )
    if bars:
        marks.append(Patch(color="#BBBBBB", label=ours))
        marks.append(Line2D([], [], linestyle="", **PAPER_MARK, label="paper"))
    else:
        marks.append(Line2D([], [], color=GREY, label=ours))
        marks.append(Line2D([], [], color=GREY, marker="o", markerfacecolor="white", linestyle="--", label="paper"))
    columns = _fitting([m.get_label() for m in marks], canvas.get_size_inches()[0])
    canvas.legend(handles=marks, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)


def _fitting(labels: Sequence[str], inches: float) -> int:
    """The most columns of a legend, up to four, that fit into a width; it is filled evenly, column by column."""
    for columns in range(min(4, len(labels)), 1, -1):
        rows, longer = divmod(len(labels), columns)
        starts = [i * rows + min(i, longer) for i in range(columns + 1)]
        longest = [max(map(len, labels[a:b])) for a, b in itertools.pairwise(starts)]
        if sum(0.65 + 0.068 * letters for letters in longest) < inches:  # a mark and its gaps; a letter at 8 points
            return columns
    return 1


def _headline(canvas: Any, planned: Planned) -> None:
    """The figure's title, and below it how its conditions differ from the paper's."""
    of_paper = "" if planned.name in published.BEYOND else " of the paper"
    text = f"{planned.table.title} ({planned.table.where}{of_paper})"
    width = int(11 * canvas.get_size_inches()[0])  # characters of this size in a line
    lines = [*textwrap.wrap(text, width), *textwrap.wrap("; ".join(planned.remarks), width)]
    canvas.suptitle("\n".join(lines), fontsize=11)


# --------------------------------------------------------------------------------------------------------------- graphs


def _depth(planned: Planned, results: Results, canvas: Any) -> None:
    """Bars by dataset: the gain from Conv-4 to ResNet-32; the paper's values are diamonds."""
    canvas.set_size_inches(7.2, 4.4)
    axes = canvas.add_subplot()
    sheet = planned.sheets[0]
    by_key = scores(sheet, results)
    width = 0.8 / len(sheet.rows)
    for r, row in enumerate(sheet.rows):
        colour, _ = METHODS[row.key]
        for c, column in enumerate(sheet.columns):
            cell, ours = by_key[row.key, column.key]
            x = c + (r - (len(sheet.rows) - 1) / 2) * width
            if ours.mean is not None:
                axes.bar(x, ours.mean, width * 0.86, color=colour)
            else:  # the status as text, on the other side of zero than the paper's mark
                below = (cell.paper.mean or 0.0) >= 0
                place = {"ha": "center", "va": "top" if below else "bottom", "rotation": 90}
                axes.annotate(
                    ours.status, (x, 0), (0, -3 if below else 3), textcoords="offset points", **place, **SMALL
                )
            if cell.paper.mean is not None:
                axes.plot(x, cell.paper.mean, **PAPER_MARK)
    axes.axhline(0, color="#999999", linewidth=0.8)
    axes.set_xticks(range(len(sheet.columns)), [c.title for c in sheet.columns])
    axes.set_ylabel("accuracy with ResNet-32 less that with Conv-4")
    _tidy(axes)
    has_results = any(f.mean is not None for _, f in by_key.values())
    _legend(canvas, sheet.rows, has_results, bars=True)


def _line(axes: Any, x: Sequence[float], y: Sequence[float], style: tuple[str, str], **more: Any) -> None:
    colour, marker = style
    axes.plot(x, y, color=colour, marker=marker, markersize=5.5, linewidth=1.6, **more)


def _series(
    sheet: Sheet, by_key: Scores, row: str, *, base: bool
) -> tuple[list[tuple[int, float, float]], list[tuple[int, float]]]:
    """Ours as (position, value, std) and the paper's as (position, value); from the first column's value if `base`.

    A missing value is NaN, so that no line is drawn through it.
    """
    ours, paper = [], []
    start = by_key.get((row, sheet.columns[0].key))
    for i, column in enumerate(sheet.columns):
        if (row, column.key) not in by_key:
            continue
        cell, score = by_key[row, column.key]
        our_base = (start[1].mean if start else None) if base else 0.0
        paper_base = (start[0].paper.mean if start else None) if base else 0.0
        known = score.mean is not None and our_base is not None
        ours.append((i, (score.mean or 0.0) - (our_base or 0.0) if known else math.nan, score.std or 0.0))
        if cell.paper.mean is not None and paper_base is not None:
            paper.append((i, cell.paper.mean - paper_base))
    return ours, paper


def _lines(axes: Any, sheet: Sheet, results: Results, *, base: bool) -> bool:
    """One line per row: ours full with error bars, the paper's dashed and hollow. Returns whether any are ours."""
    by_key = scores(sheet, results)
    for row in sheet.rows:
        style = METHODS[row.key]
        ours, paper = _series(sheet, by_key, row.key, base=base)
        if paper:
            x, y = zip(*paper, strict=True)
            _line(axes, x, y, style, linestyle="--", markerfacecolor="white", alpha=0.75)
        if any(math.isfinite(value) for _, value, _ in ours):
            x, y, error = zip(*ours, strict=True)
            axes.errorbar(x, y, yerr=error, color=style[0], linewidth=0, elinewidth=1.1, capsize=2.5)
            _line(axes, x, y, style)
    axes.set_xticks(range(len(sheet.columns)), [c.title.removeprefix("K = ") for c in sheet.columns])
    _tidy(axes)
    has_results = any(f.mean is not None for _, f in by_key.values())
    if has_results:
        lines = [line for row in sheet.rows for line in _gaps(sheet, by_key, row, base=base)]
        place = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "top", "annotation_clip": False}
        axes.annotate("\n".join(lines), (0, 0), (0, -36), **place, **SMALL)
    return has_results


def _gaps(sheet: Sheet, by_key: Scores, row: Row, *, base: bool) -> Iterator[str]:
    """Text for where a row has no point: `RotationNet: failed at K = 8`."""
    row_scores = {c.title: by_key[row.key, c.key][1] for c in sheet.columns if (row.key, c.key) in by_key}
    states = {title: f.status for title, f in row_scores.items() if f.mean is None and f.status != NOTHING}
    if not states:
        return
    parts = [f"{s} at {', '.join(t for t in states if states[t] == s)}" for s in dict.fromkeys(states.values())]
    first = sheet.columns[0].title
    if base and first in states and len(states) < len(row_scores):
        parts.append(f"without {first} there is nothing to compare with")
    yield from textwrap.wrap(f"{row.title}: {'; '.join(parts)}", 84)


def _augmentations(planned: Planned, results: Results, canvas: Any) -> None:
    canvas.set_size_inches(6.2, 4.4)
    axes = canvas.add_subplot()
    has_results = _lines(axes, planned.sheets[0], results, base=True)
    axes.axhline(0, color="#999999", linewidth=0.8)
    axes.set_xlabel("augmentations of the mini-batch, K")
    axes.set_ylabel("validation accuracy less that with K = 2")
    _legend(canvas, planned.sheets[0].rows, has_results)


def _semi_supervised(planned: Planned, results: Results, canvas: Any) -> None:
    canvas.set_size_inches(max(5.2, 4.3 * len(planned.sheets)), 4.2)
    has_results = False
    for i, sheet in enumerate(planned.sheets):
        axes = canvas.add_subplot(1, len(planned.sheets), i + 1)
        has_results = _lines(axes, sheet, results, base=False) or has_results
        axes.set_title(sheet.table.title.removeprefix("Semi-supervised, "))
        axes.set_xlabel("labels available in training")
        axes.set_ylabel("accuracy (percent)" if i == 0 else "")
        bound = next((c.paper.mean for c in sheet.cells if c.row.bound and c.paper.mean is not None), None)
        if bound is not None:
            axes.axhline(bound, color=METHODS["supervised"][0], linewidth=1.0, linestyle=":")
            axes.text(0, bound, "supervised (paper)", fontsize=8, color=GREY, va="bottom")
    _legend(canvas, planned.sheets[0].rows, has_results)
