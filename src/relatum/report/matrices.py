"""What the representation takes for what: class × class matrices of retrieval, as heat maps that are tables."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from relatum.report.markup import Html, el, name_of
from relatum.report.page import Page, filled, note, side_by_side
from relatum.report.runfolder import Run, Table
from relatum.report.words import data_title, number

DEPTHS = (10, 100, 1000)
MOST_NUMBERS = 25  # classes up to which a matrix is a table with numbers; beyond, a picture and the worst errors
MOST_DRAWN = 200  # and beyond, only the worst errors: three matrices of 1,000 × 1,000 would be 8 MB
WORST = 15


def errors(page: Page) -> Html | None:
    """The section of class × class matrices."""
    panels, words = [], []
    for run in page.runs:
        found = [_matrices(page, run, e) for e in run.evaluations if e["protocol"] == "retrieval"]
        made = [panel for panel in found if panel is not None]
        panels += made
        if not made:
            words.append((run, _why_no_matrix(run)))
    lead = "Of the images retrieved for queries of each class (rows), the share of each class (columns), in percent."
    return filled(page, "errors", "What it takes for what", words, side_by_side(panels), lead)


def _why_no_matrix(run: Run) -> str:
    if run.unlabelled or any(e["protocol"] == "retrieval" for e in run.evaluations):
        return "No class × class matrix: without labels there are no classes to count."
    return "No class × class matrix yet: `relatum evaluate retrieval RUN --data DATA` measures it on labelled images."


def _matrices(page: Page, run: Run, evaluation: Table) -> Html | None:
    """One matrix per depth (top 10, 100, 1000) with buttons to switch; all of them are in the page and in print."""
    details = evaluation["details"]
    found = _found(run, details)
    if not found:
        return None
    names = details.get("classes")
    classes = [str(name) for name in names] if isinstance(names, list) else []
    if len(classes) != len(found[0][1]):
        classes = [str(i) for i in range(len(found[0][1]))]
    where = f"{evaluation.get('dataset', '')}-{evaluation.get('split', '')}"
    ident = f"matrix-{page.runs.index(run)}-{run.evaluations.index(evaluation)}"
    tabs, sheets = [], []
    for i, (depth, matrix) in enumerate(found):
        accuracy = details.get(f"top{depth}")
        word = f"Top {depth:,}" + (f": {accuracy:.1f} %" if number(accuracy) else "")
        first = {"aria_selected": "true", "tabindex": "0"} if i == 0 else {"aria_selected": "false", "tabindex": "-1"}
        tab = {"type": "button", "role": "tab", "id": f"{ident}-t{i}", "aria_controls": f"{ident}-p{i}", **first}
        tabs.append(el("button", word, **tab))
        panel = {"role": "tabpanel", "id": f"{ident}-p{i}", "aria_labelledby": f"{ident}-t{i}", "class_": "tabpanel"}
        sheets.append(el("div", el("h4", word, class_="print-only"), _drawn(page, matrix, classes), **panel))
    bar = el("div", tabs, role="tablist", aria_label="How many images are retrieved", class_="tabs")
    return el("article", page.run_heading(run, el("bdi", data_title(where))), bar, sheets, class_="panel")


def _found(run: Run, details: Table) -> list[tuple[int, NDArray[np.float64]]]:
    """Depths and matrices in percent per row, from the result file or from the file that it names."""
    kept: Any = details.get("matrices")
    if not isinstance(kept, dict) and details.get("matrices_file"):
        kept = run.load(run.folder / "artifacts" / Path(str(details["matrices_file"])).name)
    result: list[tuple[int, NDArray[np.float64]]] = []
    for depth in DEPTHS:
        try:
            matrix = np.asarray((kept or {}).get(f"top{depth}"), np.float64)
        except (TypeError, ValueError):
            continue
        if matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] >= 2 and np.isfinite(matrix).all():
            sums = matrix.sum(axis=1, keepdims=True)
            result.append((depth, 100 * np.divide(matrix, sums, out=np.zeros_like(matrix), where=sums > 0)))
    return [(depth, matrix) for depth, matrix in result if matrix.shape == result[0][1].shape]


def _drawn(page: Page, matrix: NDArray[np.float64], classes: list[str]) -> Html:
    if len(matrix) <= MOST_NUMBERS:
        return _table(matrix, classes)
    if len(matrix) <= MOST_DRAWN:
        return _large(page, matrix, classes)
    words = f"{len(matrix):,} × {len(matrix):,} classes are too many to draw; these are the largest errors."
    return el("div", note(page, [], words), _worst(matrix, classes, 2 * WORST))


def _table(matrix: NDArray[np.float64], classes: list[str]) -> Html:
    """A heat map that is a table: hits and errors have a colour each, on a scale of their own."""
    off = matrix[~np.eye(len(matrix), dtype=bool)]
    scale = (float(np.diag(matrix).max()) or 1.0, float(off.max()) or 1.0)
    head = el(
        "tr",
        el("td", "query ↓ found →", class_="corner"),
        [el("th", el("span", name_of(c)), scope="col") for c in classes],
    )
    rows = []
    for i, name in enumerate(classes):
        cells = []
        for j, value in enumerate(matrix[i]):
            heat = float(value) / scale[i != j]
            kind = "d" if i == j else "e"
            strong = " s" if heat > 0.6 else ""
            text = f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"
            cells.append(el("td", text, class_=kind + strong, style=f"--h:{100 * heat:.0f}%"))
        rows.append(el("tr", el("th", name_of(name), scope="row"), cells))
    table = el("table", el("thead", head), el("tbody", rows), class_="matrix")
    scroll = el("div", table, class_="scroll", tabindex="0", role="group", aria_label="Matrix, scrolls sideways")
    return el("div", scroll, _worst(matrix, classes, 8), class_="small-matrix")


def _large(page: Page, matrix: NDArray[np.float64], classes: list[str]) -> Html:
    """Too many classes for numbers: a picture that page.js reads values from, and the largest errors in words."""
    n = len(matrix)
    # Square roots: most errors are far smaller than the largest, and differences among them are what one looks for.
    heat = np.sqrt(matrix / (matrix.max() or 1.0))
    colours = np.where(np.eye(n, dtype=bool)[..., None], (47, 127, 200), (224, 108, 16))
    pixels = np.concatenate([colours, (255 * heat[..., None]).round()], axis=2).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    uri = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
    place = len(page.data["matrices"])
    page.data["matrices"].append({"classes": classes, "values": [[round(float(v), 2) for v in row] for row in matrix]})
    alt = f"Heat map of {n} × {n} classes; the largest errors are in the table beside it"
    image = el("img", src=uri, alt=alt, class_="heat pixels", data_matrix=str(place), width=n, height=n)
    caption = el("figcaption", "Rows: query; columns: found. Point at a cell to read it.", class_="readout")
    return el("div", el("figure", image, caption), _worst(matrix, classes, WORST), class_="large-matrix")


def _worst(matrix: NDArray[np.float64], classes: list[str], most: int) -> Html:
    """The largest errors, as one would say them."""
    off = matrix.copy()
    np.fill_diagonal(off, 0)
    rows = []
    for place in np.argsort(-off, axis=None, kind="stable")[:most]:
        i, j = divmod(int(place), len(matrix))
        if off[i, j] > 0:
            names = [el("td", name_of(classes[i])), el("td", name_of(classes[j]))]
            rows.append(el("tr", names, el("td", f"{matrix[i, j]:.1f}"), el("td", f"{matrix[i, i]:.1f}")))
    head = el("tr", [el("th", text, scope="col") for text in ("query", "found", "%", "hits %")])
    return el("table", el("caption", "Largest errors"), el("thead", head), el("tbody", rows), class_="figures worst")
