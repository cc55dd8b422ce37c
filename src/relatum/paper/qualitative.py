"""Figures made of pictures: matrices of what was retrieved, sheets of queries, t-SNE maps.

They are drawn from what evaluations left: matrices in the result files, and for maps and sheets the files in the run's
`artifacts` folder. The ledger keeps no artifacts, so a map is drawn only where its run folder is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relatum.errors import RelatumError
from relatum.paper.grid import Evaluation
from relatum.paper.measured import FAILED, Results, score
from relatum.paper.plan import Planned
from relatum.runs import artifacts

# Paul Tol's "muted" scheme and his "vibrant" blue and orange: they stay apart in all common kinds of colour blindness.
TEN = ("#332288", "#88CCEE", "#117733", "#DDCC77", "#CC6677", "#AA4499", "#44AA99", "#999933", "#882255", "#777777")
TWO = ("#0077BB", "#EE7733")
GREY = "#6E6E6E"


def _empty(axes: Any, words: str) -> None:
    axes.text(0.5, 0.5, words, ha="center", va="center", color=GREY, transform=axes.transAxes)
    axes.set_xticks([])
    axes.set_yticks([])


# ---------------------------------------------------------------------------------------------------- retrieval, errors


def matrix(document: Mapping[str, Any], top: str) -> NDArray[np.float64] | None:
    """The class × class matrix of a retrieval result, in percent of each row, or None where it was not kept."""
    found = ((document.get("details") or {}).get("matrices") or {}).get(top)
    return None if found is None else np.asarray(found, dtype=np.float64)


def retrieval_errors(planned: Planned, results: Results, canvas: Any) -> None:
    """Methods side by side, top-10/100/1000 from top to bottom: what was retrieved (columns) for each class (rows)."""
    from relatum.paper.figures import figures_of, headline

    sheet = planned.sheets[0]
    found = figures_of(sheet, results)
    rows, columns = len(sheet.columns), len(sheet.rows)
    canvas.set_size_inches(5.2 * columns, 4.6 * rows)
    for c, method in enumerate(sheet.rows):
        for r, column in enumerate(sheet.columns):
            axes = canvas.add_subplot(rows, columns, r * columns + c + 1)
            cell, ours = found[method.key, column.key]
            documents = [d for e in cell.evaluations if (d := results.result(e)) is not None]
            matrices = [m for d in documents if (m := matrix(d, column.key)) is not None]
            paper = f", paper {cell.paper.mean:.1f}" if cell.paper.mean is not None else ""
            axes.set_title(f"{method.title}, {column.title}\n{ours.text}{paper}", fontsize=9)
            if matrices:
                names = (documents[0].get("details") or {}).get("classes")
                _matrix(axes, np.stack(matrices), names)
            else:
                _empty(axes, "no runs yet" if not documents else "no matrix kept")
    headline(canvas, planned)


def _matrix(axes: Any, seeds: NDArray[np.float64], names: Any) -> None:
    mean, n = seeds.mean(0), seeds.shape[1]
    spread = seeds.std(0, ddof=1) if len(seeds) > 1 else None
    axes.imshow(mean, cmap="cividis", vmin=0, vmax=100)
    names = names or [str(i) for i in range(n)]
    if n > 20:  # labels and numbers would not be readable
        axes.set_xticks([])
        axes.set_yticks([])
        return
    axes.set_xticks(range(n), names, rotation=45, ha="right", fontsize=7)
    axes.set_yticks(range(n), names, fontsize=7)
    axes.tick_params(length=0)
    for i in range(n):
        for j in range(n):
            text = f"{mean[i, j]:.1f}" + (f"\n±{spread[i, j]:.1f}" if spread is not None and i == j else "")
            axes.text(j, i, text, ha="center", va="center", fontsize=5.5, color="white" if mean[i, j] < 55 else "black")


# ------------------------------------------------------------------------------------------------------ sheets and maps


def _artifact(results: Results, evaluation: Evaluation) -> artifacts.Arrays | None:
    """What an evaluation left in its run's artifacts, or None where that is not here."""
    try:
        return artifacts.load(results.artifact(evaluation)) if results.ready(evaluation, picture=True) else None
    except RelatumError:
        return None


def _panels(planned: Planned, results: Results, canvas: Any) -> Iterator[tuple[Any, artifacts.Arrays]]:
    """Axes side by side, one per cell, with what its evaluation left; those without say so in words."""
    from relatum.paper.figures import headline

    headline(canvas, planned)
    for i, cell in enumerate(planned.cells):
        axes = canvas.add_subplot(1, len(planned.cells), i + 1)
        axes.set_title(cell.row.title)
        axes.set_xticks([])
        axes.set_yticks([])
        found = _artifact(results, cell.evaluations[0])
        if found is None:
            status = score(cell, results).status
            kept = results.result(cell.evaluations[0]) is not None
            _empty(axes, "failed" if status == FAILED else "no picture kept" if kept else "no runs yet")
        else:
            yield axes, found


def retrieval(planned: Planned, results: Results, canvas: Any) -> None:
    """Queries (left, framed) with their ten nearest images, methods side by side."""
    canvas.set_size_inches(4.4 * len(planned.cells), 10.4)
    for axes, found in _panels(planned, results, canvas):
        axes.imshow(sheet(found), interpolation="nearest")
        axes.set_axis_off()


def sheet(found: artifacts.Arrays, gap: int = 2) -> NDArray[np.uint8]:
    """One picture: a row per query, the query in a red frame, its nearest images to the right of it."""
    thumbs, queries, near = found["thumbs"], found["query_index"], found["neighbour_index"]
    place = {int(index): i for i, index in enumerate(found["image_index"])}
    side = thumbs.shape[1]
    step = side + 2 * gap
    picture = np.full((len(queries) * step, (near.shape[1] + 1) * step + 3 * gap, 3), 255, np.uint8)
    for row, (query, others) in enumerate(zip(queries, near, strict=True)):
        picture[row * step : row * step + side + 2 * gap - 1, : side + 2 * gap - 1] = (213, 94, 0)
        for column, index in enumerate((query, *others)):
            top, left = row * step + gap, column * step + gap + 3 * gap * (column > 0)
            picture[top : top + side - 1, left : left + side - 1] = thumbs[place[int(index)]][:-1, :-1]
    return picture


def _maps(planned: Planned, results: Results, canvas: Any, labels: str, names: str) -> None:
    """Maps side by side, coloured by the groups in `labels`, whose names are in `names`."""
    from matplotlib.lines import Line2D

    canvas.set_size_inches(4.0 * len(planned.cells), 4.7)
    marks: dict[str, Any] = {}
    for axes, found in _panels(planned, results, canvas):
        group = found[labels] if len(found[labels]) else np.zeros(len(found["xy"]), np.int64)
        titles = [str(t) for t in found[names]] or ["all images"]
        size = float(np.clip(15_000 / len(group), 1.5, 20))
        colours = TEN if len(titles) > 2 else TWO
        for number, title in enumerate(titles):
            colour = colours[number % len(colours)]
            axes.scatter(*found["xy"][group == number].T, s=size, linewidths=0, color=colour, rasterized=True)
            marks[title] = Line2D([], [], color=colour, marker="o", linestyle="", label=title)
        axes.set_aspect("equal", "datalim")
    if 0 < len(marks) <= 20:
        columns = min(len(marks), 10)
        canvas.legend(
            handles=list(marks.values()), loc="outside lower center", ncols=columns, frameon=False, fontsize=8
        )


def tsne(planned: Planned, results: Results, canvas: Any) -> None:
    """t-SNE maps coloured by class."""
    _maps(planned, results, canvas, "labels", "classes")


def tsne_super(planned: Planned, results: Results, canvas: Any) -> None:
    """t-SNE maps coloured by super-category: vehicles against animals."""
    _maps(planned, results, canvas, "super", "super_names")
