"""Accuracy over compute: one point per run, minutes of pretraining across and linear evaluation upwards."""

from __future__ import annotations

from typing import Any

from relatum.drawing import GREY, METHODS
from relatum.paper.cells import Planned
from relatum.paper.measured import Results, scores

_BOUNDS = ("supervised", "random")  # far above and below the other methods: named in a caption, not drawn


def accuracy_over_compute(planned: Planned, results: Results, canvas: Any) -> None:
    """Points of one method have its colour and marker, are joined by a line and are labelled with views per image."""
    from matplotlib.lines import Line2D
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    canvas.set_size_inches(8.0, 5.2)
    axes = canvas.add_subplot()
    points, bounds = _points(planned, results)
    for method, measured in points.items():
        colour, marker = METHODS[method]
        x, y, _ = zip(*sorted(measured), strict=True)
        axes.plot(x, y, color=colour, marker=marker, markersize=6, linewidth=1.0, alpha=0.9)
        for minutes, accuracy, views in measured:
            place: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7, "color": GREY}
            axes.annotate(str(views), (minutes, accuracy), (5, 4), **place)
    if points:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
    else:
        axes.annotate("no runs yet", (0.5, 0.5), xycoords="axes fraction", ha="center", color=GREY)
    if bounds:
        place = {"xycoords": "axes fraction", "ha": "right", "fontsize": 8, "color": GREY}
        axes.annotate("not drawn: " + ", ".join(bounds), (0.99, 0.015), **place)
    axes.set_xlabel("minutes of pretraining (labels: views per image)")
    axes.set_ylabel("linear evaluation, percent")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#E4E4E4", linewidth=0.8)
    axes.set_axisbelow(True)
    marks = [Line2D([], [], color=METHODS[m][0], marker=METHODS[m][1], label=m) for m in points]
    if marks:
        canvas.legend(handles=marks, loc="outside lower center", ncols=6, frameon=False, fontsize=8)


def _points(planned: Planned, results: Results) -> tuple[dict[str, list[tuple[float, float, int]]], list[str]]:
    """Minutes, accuracy and views per image of each run, by method; and the bounds, such as "random weights 33.7"."""
    sheet = planned.sheets[0]
    by_key = scores(sheet, results)
    points: dict[str, list[tuple[float, float, int]]] = {}
    bounds = []
    for row in sheet.rows:
        if (row.key, "linear") not in by_key or (row.key, "seconds") not in by_key:
            continue
        cell, score = by_key[row.key, "linear"]
        seconds = by_key[row.key, "seconds"][1].mean
        run, accuracy = cell.evaluations[0].run, score.mean
        if accuracy is None:
            continue
        if run.method in _BOUNDS:
            bounds.append(f"{run.method}{' weights' * (run.method == 'random')} {accuracy:.1f}")
        elif seconds is not None:
            points.setdefault(run.method, []).append((seconds / 60, accuracy, run.all_views))
    return points, bounds
