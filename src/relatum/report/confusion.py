"""Confusion in retrieval: class × class matrices of what is retrieved for queries of each class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relatum.report.page import Page, Panel, Reason, Section
from relatum.report.thumbnails import png_uri
from relatum.runs.reading import RunRecord, is_number

DEPTHS = (10, 100, 1000)
MAX_TABLE = 25  # classes up to which a matrix is a table with numbers; beyond, an image and the largest errors
MAX_IMAGE = 200  # and beyond, only the largest errors: three matrices of 1,000 × 1,000 would be 8 MB

Matrix = NDArray[np.float64]


def confusion(page: Page) -> Section:
    """The section of class × class matrices."""
    panels: list[Panel] = []
    reasons: list[Reason] = []
    for run in page.runs:
        retrievals = [e for e in run.evaluations if e["protocol"] == "retrieval"]
        of_run = [panel for panel in (_panel(page, run, e) for e in retrievals) if panel["matrices"]]
        panels += of_run
        if not of_run and (not run.linear_command or retrievals):
            reasons.append((run, "No confusion matrix: without labels there are no classes to count."))
        elif not of_run:
            text = "No confusion matrix yet. Run `relatum evaluate retrieval RUN --data DATA` on labelled images."
            reasons.append((run, text))
    lead = "Of the images retrieved for queries of each class (rows), the percentage in each class (columns)."
    return Section("errors", "Confusion", "Confusion in retrieval", panels, lead, reasons)


def _panel(page: Page, run: RunRecord, evaluation: dict[str, Any]) -> Panel:
    """One matrix per depth (top 10, 100, 1000), on tabs; all of them are in the page and in print."""
    details, matrices = evaluation["details"], []
    names = details.get("classes")
    for depth, matrix in _read(run, details):
        classes = [str(name) for name in names] if isinstance(names, list) else []
        if len(classes) != len(matrix):
            classes = [str(i) for i in range(len(matrix))]
        accuracy = details.get(f"top{depth}")
        title = f"Top {depth:,}" + (f": {accuracy:.1f} %" if is_number(accuracy) else "")
        matrices.append({"title": title, "classes": classes, **_drawn(page, matrix, classes)})
    stem = f"{evaluation.get('dataset', '')}-{evaluation.get('split', '')}"
    name = f"matrix-{page.runs.index(run)}-{run.evaluations.index(evaluation)}"
    return {"run": run, "stem": stem, "id": name, "matrices": matrices}


def _read(run: RunRecord, details: dict[str, Any]) -> list[tuple[int, Matrix]]:
    """Depths and matrices in percent of each row, from the result file or from the file that it names."""
    arrays: Any = details.get("matrices")
    if not isinstance(arrays, dict) and details.get("matrices_file"):
        arrays = run.load_artifact(run.folder.artifact(Path(str(details["matrices_file"])).stem))
    result: list[tuple[int, Matrix]] = []
    for depth in DEPTHS:
        try:
            matrix = np.asarray((arrays or {}).get(f"top{depth}"), np.float64)
        except (TypeError, ValueError):
            continue
        if matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] >= 2 and np.isfinite(matrix).all():
            sums = matrix.sum(axis=1, keepdims=True)
            result.append((depth, 100 * np.divide(matrix, sums, out=np.zeros_like(matrix), where=sums > 0)))
    return [(depth, matrix) for depth, matrix in result if matrix.shape == result[0][1].shape]


def _drawn(page: Page, matrix: Matrix, classes: list[str]) -> Panel:
    """A matrix as a table, an image or only its largest errors, depending on its size."""
    if len(matrix) <= MAX_TABLE:
        return {"kind": "table", "rows": _cells(matrix), "worst": _largest_errors(matrix, classes, 8)}
    if len(matrix) <= MAX_IMAGE:
        values = [[round(float(value), 2) for value in row] for row in matrix]
        page.data["matrices"].append({"classes": classes, "values": values})
        number = len(page.data["matrices"]) - 1
        return {
            "kind": "image",
            "src": _heat_map(matrix),
            "number": number,
            "worst": _largest_errors(matrix, classes, 15),
        }
    return {"kind": "errors", "worst": _largest_errors(matrix, classes, 30)}


def _cells(matrix: Matrix) -> list[list[Panel]]:
    """Cells of a table; the diagonal and the errors have a colour each, with separate scales."""
    diagonal = np.eye(len(matrix), dtype=bool)
    heat = np.where(diagonal, matrix / (matrix[diagonal].max() or 1.0), matrix / (matrix[~diagonal].max() or 1.0))

    def cell(i: int, j: int) -> Panel:
        strong = " s" if heat[i, j] > 0.6 else ""
        text = f"{matrix[i, j]:.0f}" if matrix[i, j] >= 9.95 else f"{matrix[i, j]:.1f}"
        return {"class": ("d" if i == j else "e") + strong, "heat": f"{100 * heat[i, j]:.0f}", "text": text}

    return [[cell(i, j) for j in range(len(matrix))] for i in range(len(matrix))]


def _heat_map(matrix: Matrix) -> str:
    """A matrix as a PNG with one pixel per cell."""
    # Square roots, because most errors are far smaller than the largest and differences among them matter.
    heat = np.sqrt(matrix / (matrix.max() or 1.0))
    colours = np.where(np.eye(len(matrix), dtype=bool)[..., None], (47, 127, 200), (224, 108, 16))
    pixels = np.concatenate([colours, (255 * heat[..., None]).round()], axis=2).astype(np.uint8)
    return png_uri(pixels)


def _largest_errors(matrix: Matrix, classes: list[str], most: int) -> list[tuple[str, str, str, str]]:
    """Query class, retrieved class, its percentage, and that of the query's own class."""
    errors = matrix.copy()
    np.fill_diagonal(errors, 0)
    places = [divmod(int(place), len(matrix)) for place in np.argsort(-errors, axis=None, kind="stable")[:most]]
    return [
        (classes[i], classes[j], f"{matrix[i, j]:.1f}", f"{matrix[i, i]:.1f}") for i, j in places if errors[i, j] > 0
    ]
