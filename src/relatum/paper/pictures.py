"""Figures made of pictures: matrices of what was retrieved, sheets of queries, t-SNE maps.

They are drawn from what evaluations left: matrices in the result files, and for maps and sheets the files in the run's
`artifacts` folder. The ledger keeps no artifacts, so a map is drawn only where its run folder is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relatum.paper.grid import Evaluation
from relatum.paper.plan import Planned
from relatum.paper.results import Results

CLASSES = ("plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
VEHICLES = (0, 1, 8, 9)
# Ten colours that stay apart in hue and lightness: Okabe & Ito's seven, then grey, wine and black.
TEN = ("#0072B2", "#D55E00", "#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#882255", "#000000", "#999999")
GREY = "#6E6E6E"


def _empty(axes: Any, words: str) -> None:
    axes.text(0.5, 0.5, words, ha="center", va="center", color=GREY, transform=axes.transAxes)
    axes.set_xticks([])
    axes.set_yticks([])


# ---------------------------------------------------------------------------------------------------- retrieval, errors


def matrix(document: Mapping[str, Any], top: str) -> NDArray[np.float64] | None:
    """The class × class matrix of a retrieval result in percent of each row, or None."""
    details = document.get("details") or {}
    nested = details.get("matrices") or {}
    for found in (nested.get(top), details.get(f"matrix_{top}"), details.get(f"{top}_matrix")):
        if found is not None:
            values = np.asarray(found, dtype=np.float64)
            if values.ndim == 2 and values.shape[0] == values.shape[1]:
                return 100 * values / np.maximum(values.sum(1, keepdims=True), 1e-12)
    return None


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
    if not names:
        names = CLASSES if n == 10 else [str(i) for i in range(n)]
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


def _artifact(results: Results, evaluation: Evaluation, kind: str, endings: tuple[str, ...]) -> Path | None:
    """The newest file of an evaluation in its run's artifacts, `KIND…DATASET….ENDING`."""
    folder = results.run_dir(evaluation.run) / "artifacts"
    stem = evaluation.file.removesuffix(".json")
    for pattern in (f"{stem}*", f"{kind}*{evaluation.dataset}*", f"{kind}*"):
        files = sorted(p for p in folder.glob(pattern) if p.suffix.lstrip(".") in endings)
        if files:
            return files[-1]
    return None


def retrieval(planned: Planned, results: Results, canvas: Any) -> None:
    """The sheets of 25 queries with their ten nearest images, methods side by side."""
    from relatum.paper.figures import headline

    cells = planned.cells
    canvas.set_size_inches(4.6 * len(cells), 10.6)
    for i, cell in enumerate(cells):
        axes = canvas.add_subplot(1, len(cells), i + 1)
        axes.set_title(cell.row.title)
        path = _artifact(results, cell.evaluations[0], "retrieval", ("png",))
        if path is None:
            _empty(axes, "no runs yet" if results.result(cell.evaluations[0]) is None else "no picture kept")
            continue
        from PIL import Image

        with Image.open(path) as image:
            axes.imshow(np.asarray(image.convert("RGB")), interpolation="nearest")
        axes.set_axis_off()
    headline(canvas, planned)


def _map(path: Path) -> tuple[NDArray[np.float64], NDArray[np.int64], list[str]] | None:
    """Points, labels and class names of a t-SNE file."""
    with np.load(path, allow_pickle=False) as file:
        points = next((file[k] for k in ("points", "embedding", "xy", "map") if k in file), None)
        labels = next((file[k] for k in ("labels", "label", "y") if k in file), None)
        names = next((file[k] for k in ("classes", "names") if k in file), None)
    if points is None or labels is None or points.ndim != 2:
        return None
    named = [str(n) for n in names] if names is not None else []
    return points.astype(np.float64), labels.astype(np.int64), named


def _maps(planned: Planned, results: Results, canvas: Any, *, super_categories: bool) -> None:
    from relatum.paper.figures import headline

    cells = planned.cells
    canvas.set_size_inches(4.0 * len(cells), 4.6)
    names: list[str] = []
    colours: dict[str, str] = {}
    for i, cell in enumerate(cells):
        axes = canvas.add_subplot(1, len(cells), i + 1)
        axes.set_title(cell.row.title)
        path = _artifact(results, cell.evaluations[0], "tsne", ("npz",))
        found = _map(path) if path is not None else None
        if found is None:
            _empty(axes, "no runs yet" if results.result(cell.evaluations[0]) is None else "no map kept")
            continue
        points, labels, names = found
        names = names or [CLASSES[k] if labels.max() < 10 else str(k) for k in range(int(labels.max()) + 1)]
        groups = _super(labels, names) if super_categories else {n: labels == k for k, n in enumerate(names)}
        for k, (name, chosen) in enumerate(groups.items()):
            colours[name] = TEN[k % len(TEN)]
            axes.scatter(*points[chosen].T[:2], s=2.0, linewidths=0, color=colours[name], rasterized=True)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_aspect("equal", "datalim")
    if colours and len(colours) <= 20:
        from matplotlib.lines import Line2D

        marks = [Line2D([], [], color=c, marker="o", linestyle="", label=n) for n, c in colours.items()]
        canvas.legend(handles=marks, loc="outside lower center", ncols=min(len(marks), 10), frameon=False, fontsize=8)
    headline(canvas, planned)


def _super(labels: NDArray[np.int64], names: list[str]) -> dict[str, NDArray[np.bool_]]:
    """CIFAR-10's two super-categories; any other dataset has none to show."""
    if len(names) != 10:
        return {"all": np.ones(len(labels), dtype=bool)}
    vehicle = np.isin(labels, VEHICLES)
    return {"vehicles": vehicle, "animals": ~vehicle}


def tsne(planned: Planned, results: Results, canvas: Any) -> None:
    """t-SNE maps coloured by class."""
    _maps(planned, results, canvas, super_categories=False)


def tsne_super(planned: Planned, results: Results, canvas: Any) -> None:
    """t-SNE maps: vehicles against animals."""
    _maps(planned, results, canvas, super_categories=True)
