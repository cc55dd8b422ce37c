"""The paper's figures, as PNG and SVG: our results in full colour, the paper's values beside them in outline.

Colours are Okabe and Ito's, which stay apart for colour-blind readers; methods also differ in their marker. matplotlib
is imported when something is drawn. Pictures of images and of t-SNE maps are in `pictures`.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from relatum.paper.measured import NOTHING, Results, Score, score
from relatum.paper.plan import Cell, Planned, Sheet
from relatum.paper.published import Row

STYLE = {  # method -> colour (Okabe & Ito 2008), marker
    "relational": ("#D55E00", "o"),
    "simclr": ("#0072B2", "s"),
    "rotation": ("#009E73", "^"),
    "deepcluster": ("#CC79A7", "D"),
    "deepinfomax": ("#E69F00", "v"),
    "supervised": ("#595959", "P"),
    "random": ("#BBBBBB", "x"),
}
GREY = "#6E6E6E"
SMALL: dict[str, Any] = {"fontsize": 7.5, "color": GREY}
PAPER_MARK: dict[str, Any] = {"marker": "D", "markersize": 4.5, "markerfacecolor": "white", "markeredgecolor": "black"}
Draw = Callable[[Planned, Results, Any], Any]


def draw(planned: Planned, results: Results, folder: str | Path) -> list[Path]:
    """Draw a figure of the paper into `folder`; gives the files written, none for a table.

    Args:
        planned: a figure of a plan.
        results: where our figures come from.
        folder: where `NAME.png` and `NAME.svg` go.
    """
    from relatum.paper import qualitative

    drawers: Mapping[str, Draw] = {
        "fig-depth": _depth,
        "fig-augmentations": _augmentations,
        "fig-semi-supervised": _semi_supervised,
        "retrieval-errors": qualitative.retrieval_errors,
        "retrieval": qualitative.retrieval,
        "tsne": qualitative.tsne,
        "tsne-super": qualitative.tsne_super,
    }
    if planned.name not in drawers:
        return []
    import matplotlib

    # Text stays text in the SVG, and a picture drawn again from the same results is the same file.
    look: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "relatum",
        "font.size": 9,
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
    }
    with matplotlib.rc_context(look):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas

        canvas = Canvas(layout="constrained", dpi=160)
        FigureCanvasAgg(canvas)
        if drawers[planned.name](planned, results, canvas) is False:
            return []
        paths = [Path(folder) / f"{planned.name}.{ending}" for ending in ("png", "svg")]
        Path(folder).mkdir(parents=True, exist_ok=True)
        canvas.savefig(paths[0])
        canvas.savefig(paths[1], metadata={"Date": None})
    return paths


# -------------------------------------------------------------------------------------------------------------- helpers


def figures_of(sheet: Sheet, results: Results) -> dict[tuple[str, str], tuple[Cell, Score]]:
    """Cells and our figures by the keys of row and column."""
    return {(c.row.key, c.column.key): (c, score(c, results)) for c in sheet.cells}


def tidy(axes: Any) -> None:
    """Light axes: two spines, a faint grid behind the data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#999999")
    axes.grid(axis="y", color="#E4E4E4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(color="#999999")


def legend(canvas: Any, rows: Sequence[Row], anything: bool, *, bars: bool = False) -> None:
    """Below the graphs: the methods' colours, and what full colour and outline stand for."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    ours = "this implementation" + ("" if anything else " (no runs yet)")
    marks: list[Any] = []
    for row in rows:
        colour, marker = STYLE[row.key]
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


def headline(canvas: Any, planned: Planned) -> None:
    """The figure's title; what was changed of the paper's conditions goes into a second line."""
    text = f"{planned.table.title} ({planned.table.where} of the paper)"
    width = int(11 * canvas.get_size_inches()[0])  # characters of this size in a line
    lines = [*textwrap.wrap(text, width), *textwrap.wrap("; ".join(planned.remarks), width)]
    canvas.suptitle("\n".join(lines), fontsize=11)


# --------------------------------------------------------------------------------------------------------------- graphs


def _depth(planned: Planned, results: Results, canvas: Any) -> None:
    """Bars by dataset: the gain from Conv-4 to ResNet-32; the paper's as a diamond on each bar's place."""
    canvas.set_size_inches(7.2, 4.4)
    axes = canvas.add_subplot()
    sheet = planned.sheets[0]
    found = figures_of(sheet, results)
    width = 0.8 / len(sheet.rows)
    for r, row in enumerate(sheet.rows):
        colour, _ = STYLE[row.key]
        for c, column in enumerate(sheet.columns):
            cell, ours = found[row.key, column.key]
            x = c + (r - (len(sheet.rows) - 1) / 2) * width
            if ours.mean is not None:
                axes.bar(x, ours.mean, width * 0.86, color=colour)
            else:  # in words, on the side of zero that the paper's mark leaves free
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
    tidy(axes)
    anything = any(f.mean is not None for _, f in found.values())
    legend(canvas, sheet.rows, anything, bars=True)
    headline(canvas, planned)


def _line(axes: Any, x: Sequence[float], y: Sequence[float], style: tuple[str, str], **more: Any) -> None:
    colour, marker = style
    axes.plot(x, y, color=colour, marker=marker, markersize=5.5, linewidth=1.6, **more)


def _series(
    sheet: Sheet, found: Mapping[tuple[str, str], tuple[Cell, Score]], row: str, *, base: bool
) -> tuple[list[tuple[int, float, float]], list[tuple[int, float]]]:
    """Ours as (position, value, std) and the paper's as (position, value); from the first column's value if `base`.

    A value that is not there is not a number, so that no line is drawn through its place.
    """
    ours, paper = [], []
    start = found.get((row, sheet.columns[0].key))
    for i, column in enumerate(sheet.columns):
        if (row, column.key) not in found:
            continue
        cell, mine = found[row, column.key]
        our_base = (start[1].mean if start else None) if base else 0.0
        paper_base = (start[0].paper.mean if start else None) if base else 0.0
        known = mine.mean is not None and our_base is not None
        ours.append((i, (mine.mean or 0.0) - (our_base or 0.0) if known else math.nan, mine.std or 0.0))
        if cell.paper.mean is not None and paper_base is not None:
            paper.append((i, cell.paper.mean - paper_base))
    return ours, paper


def _lines(axes: Any, sheet: Sheet, results: Results, *, base: bool) -> bool:
    """One line per row, ours full with error bars, the paper's dashed and hollow; whether anything is ours."""
    found = figures_of(sheet, results)
    for row in sheet.rows:
        style = STYLE[row.key]
        ours, paper = _series(sheet, found, row.key, base=base)
        if paper:
            x, y = zip(*paper, strict=True)
            _line(axes, x, y, style, linestyle="--", markerfacecolor="white", alpha=0.75)
        if any(math.isfinite(value) for _, value, _ in ours):
            x, y, error = zip(*ours, strict=True)
            axes.errorbar(x, y, yerr=error, color=style[0], linewidth=0, elinewidth=1.1, capsize=2.5)
            _line(axes, x, y, style)
    axes.set_xticks(range(len(sheet.columns)), [c.title.removeprefix("K = ") for c in sheet.columns])
    tidy(axes)
    anything = any(f.mean is not None for _, f in found.values())
    if anything:
        words = [line for row in sheet.rows for line in _lacking(sheet, found, row, base=base)]
        place = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "top", "annotation_clip": False}
        axes.annotate("\n".join(words), (0, 0), (0, -36), **place, **SMALL)
    return anything


def _lacking(
    sheet: Sheet, found: Mapping[tuple[str, str], tuple[Cell, Score]], row: Row, *, base: bool
) -> Iterator[str]:
    """In words, where a row has no point: `RotationNet: failed at K = 8`."""
    own = {c.title: found[row.key, c.key][1] for c in sheet.columns if (row.key, c.key) in found}
    states = {title: f.status for title, f in own.items() if f.mean is None and f.status != NOTHING}
    if not states:
        return
    parts = [f"{s} at {', '.join(t for t in states if states[t] == s)}" for s in dict.fromkeys(states.values())]
    first = sheet.columns[0].title
    if base and first in states and len(states) < len(own):
        parts.append(f"without {first} there is nothing to compare with")
    yield from textwrap.wrap(f"{row.title}: {'; '.join(parts)}", 84)


def _augmentations(planned: Planned, results: Results, canvas: Any) -> None:
    canvas.set_size_inches(6.2, 4.4)
    axes = canvas.add_subplot()
    anything = _lines(axes, planned.sheets[0], results, base=True)
    axes.axhline(0, color="#999999", linewidth=0.8)
    axes.set_xlabel("augmentations of the mini-batch, K")
    axes.set_ylabel("validation accuracy less that with K = 2")
    legend(canvas, planned.sheets[0].rows, anything)
    headline(canvas, planned)


def _semi_supervised(planned: Planned, results: Results, canvas: Any) -> None:
    canvas.set_size_inches(max(5.2, 4.3 * len(planned.sheets)), 4.2)
    anything = False
    for i, sheet in enumerate(planned.sheets):
        axes = canvas.add_subplot(1, len(planned.sheets), i + 1)
        anything = _lines(axes, sheet, results, base=False) or anything
        axes.set_title(sheet.table.title.removeprefix("Semi-supervised, "))
        axes.set_xlabel("labels available in training")
        axes.set_ylabel("accuracy (percent)" if i == 0 else "")
        bound = next((c.paper.mean for c in sheet.cells if c.row.bound and c.paper.mean is not None), None)
        if bound is not None:
            axes.axhline(bound, color=STYLE["supervised"][0], linewidth=1.0, linestyle=":")
            axes.text(0, bound, "supervised (paper)", fontsize=8, color=GREY, va="bottom")
    legend(canvas, planned.sheets[0].rows, anything)
    headline(canvas, planned)
