"""Accuracy over compute: one point per run, seconds of pretraining across and linear evaluation upwards."""

from __future__ import annotations

from typing import Any

from relatum.drawing import GREY, METHODS
from relatum.paper.cells import Planned
from relatum.paper.measured import Results, scores


def accuracy_over_compute(planned: Planned, results: Results, canvas: Any) -> None:
    """Points of one method have its colour and marker, are joined by a line and are labelled with views per image."""
    from matplotlib.lines import Line2D

    canvas.set_size_inches(8.0, 5.2)
    axes = canvas.add_subplot()
    sheet = planned.sheets[0]
    by_key = scores(sheet, results)
    points: dict[str, list[tuple[float, float, int]]] = {}
    for row in sheet.rows:
        if (row.key, "linear") not in by_key or (row.key, "seconds") not in by_key:
            continue
        cell, accuracy = by_key[row.key, "linear"]
        seconds = by_key[row.key, "seconds"][1].mean
        run = cell.evaluations[0].run
        if run.method == "random":
            if accuracy.mean is not None:
                axes.axhline(accuracy.mean, color=METHODS["random"][0], linewidth=1.0, linestyle=":")
                axes.annotate("random weights", (0.01, accuracy.mean), xycoords=("axes fraction", "data"), fontsize=8)
        elif accuracy.mean is not None and seconds is not None:
            points.setdefault(run.method, []).append((seconds, accuracy.mean, run.all_views))
    for method, measured in points.items():
        colour, marker = METHODS[method]
        x, y, _ = zip(*sorted(measured), strict=True)
        axes.plot(x, y, color=colour, marker=marker, markersize=6, linewidth=1.0, alpha=0.9)
        for seconds, accuracy_value, views in measured:
            place: dict[str, Any] = {"textcoords": "offset points", "fontsize": 7, "color": GREY}
            axes.annotate(str(views), (seconds, accuracy_value), (5, 4), **place)
    if points:
        axes.set_xscale("log")
    else:
        axes.annotate("no runs yet", (0.5, 0.5), xycoords="axes fraction", ha="center", color=GREY)
    axes.set_xlabel("seconds of pretraining (labels: views per image)")
    axes.set_ylabel("linear evaluation, percent")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#E4E4E4", linewidth=0.8)
    axes.set_axisbelow(True)
    marks = [Line2D([], [], color=METHODS[m][0], marker=METHODS[m][1], label=m) for m in points]
    if marks:
        canvas.legend(handles=marks, loc="outside lower center", ncols=6, frameon=False, fontsize=8)
