"""Figures of the paper's qualitative analysis: confusion in retrieval, retrieved images, t-SNE maps.

Retrieval matrices are in the result files. Maps and images are drawn from the `artifacts` folder of a run, which the
ledger does not keep.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relatum.drawing import GREY, palette, retrieval_sheet
from relatum.errors import RelatumError
from relatum.paper.cells import Planned
from relatum.paper.grid import Evaluation
from relatum.paper.measured import FAILED, Results, score, scores
from relatum.runs import artifacts


def _empty(axes: Any, text: str) -> None:
    axes.text(0.5, 0.5, text, ha="center", va="center", color=GREY, transform=axes.transAxes)
    axes.set_xticks([])
    axes.set_yticks([])


def retrieval_errors(planned: Planned, results: Results, canvas: Any) -> None:
    """Class × class matrices of what was retrieved: a column per method; top 10, 100 and 1000 from top to bottom."""
    sheet = planned.sheets[0]
    by_key = scores(sheet, results)
    rows, columns = len(sheet.columns), len(sheet.rows)
    canvas.set_size_inches(5.2 * columns, 4.6 * rows)
    for c, method in enumerate(sheet.rows):
        for r, column in enumerate(sheet.columns):
            axes = canvas.add_subplot(rows, columns, r * columns + c + 1)
            cell, ours = by_key[method.key, column.key]
            details = [d.get("details") or {} for e in cell.evaluations if (d := results.result(e)) is not None]
            matrices = [m for d in details if (m := (d.get("matrices") or {}).get(column.key)) is not None]
            paper = f", paper {cell.paper.mean:.1f}" if cell.paper.mean is not None else ""
            axes.set_title(f"{method.title}, {column.title}\n{ours.text}{paper}", fontsize=9)
            if matrices:
                _matrix(axes, np.asarray(matrices, np.float64), details[0].get("classes"))
            else:
                _empty(axes, "no matrix saved" if details else "no runs yet")


def _matrix(axes: Any, seeds: NDArray[np.float64], names: Any) -> None:
    mean, n = seeds.mean(0), seeds.shape[1]
    spread = seeds.std(0, ddof=1) if len(seeds) > 1 else None
    axes.imshow(mean, cmap="cividis", vmin=0, vmax=100)
    if n > 20:  # labels and numbers would not be readable
        axes.set_xticks([])
        axes.set_yticks([])
        return
    names = names or [str(i) for i in range(n)]
    axes.set_xticks(range(n), names, rotation=45, ha="right", fontsize=7)
    axes.set_yticks(range(n), names, fontsize=7)
    axes.tick_params(length=0)
    for i, j in np.ndindex(n, n):
        text = f"{mean[i, j]:.1f}" + (f"\n±{spread[i, j]:.1f}" if spread is not None and i == j else "")
        axes.text(j, i, text, ha="center", va="center", fontsize=5.5, color="white" if mean[i, j] < 55 else "black")


def _artifact(results: Results, evaluation: Evaluation) -> artifacts.Arrays | None:
    """The arrays that an evaluation saved in its run's folder, or None if they are not there."""
    try:
        return artifacts.load(results.artifact(evaluation)) if results.ready(evaluation, picture=True) else None
    except RelatumError:
        return None


def _panels(planned: Planned, results: Results, canvas: Any) -> Iterator[tuple[Any, artifacts.Arrays]]:
    """One panel per cell with the arrays its evaluation saved; a panel without any says why."""
    for i, cell in enumerate(planned.cells):
        axes = canvas.add_subplot(1, len(planned.cells), i + 1)
        axes.set_title(cell.row.title)
        axes.set_xticks([])
        axes.set_yticks([])
        if (arrays := _artifact(results, cell.evaluations[0])) is not None:
            yield axes, arrays
        elif score(cell, results).status == FAILED:
            _empty(axes, "failed")
        else:
            _empty(axes, "no picture saved" if results.result(cell.evaluations[0]) is not None else "no runs yet")


def retrieval(planned: Planned, results: Results, canvas: Any) -> None:
    """Queries with their ten nearest images, a panel per method."""
    canvas.set_size_inches(4.4 * len(planned.cells), 10.4)
    for axes, arrays in _panels(planned, results, canvas):
        queries, neighbours = arrays["query_index"], arrays["neighbour_index"]
        image = retrieval_sheet(arrays["thumbs"], queries, neighbours, arrays["image_index"])
        axes.imshow(image, interpolation="nearest")
        axes.set_axis_off()


def tsne(planned: Planned, results: Results, canvas: Any, labels: str = "labels", names: str = "classes") -> None:
    """t-SNE maps, a panel per method, coloured by the groups in the array `labels`."""
    from matplotlib.lines import Line2D

    canvas.set_size_inches(4.0 * len(planned.cells), 4.7)
    legend: dict[str, Any] = {}
    for axes, arrays in _panels(planned, results, canvas):
        group = arrays[labels] if len(arrays[labels]) else np.zeros(len(arrays["xy"]), np.int64)
        titles = [str(t) for t in arrays[names]] or ["all images"]
        size = float(np.clip(15_000 / len(group), 1.5, 20))
        for number, (title, colour) in enumerate(zip(titles, palette(len(titles)), strict=False)):
            axes.scatter(*arrays["xy"][group == number].T, s=size, linewidths=0, color=colour, rasterized=True)
            legend[title] = Line2D([], [], color=colour, marker="o", linestyle="", label=title)
        axes.set_aspect("equal", "datalim")
    if 0 < len(legend) <= 20:
        place = {"loc": "outside lower center", "ncols": min(len(legend), 10, 5 * len(planned.cells))}
        canvas.legend(handles=list(legend.values()), frameon=False, fontsize=8, **place)


def tsne_super(planned: Planned, results: Results, canvas: Any) -> None:
    """t-SNE maps coloured by super-category: vehicles and animals."""
    tsne(planned, results, canvas, "super", "super_names")
