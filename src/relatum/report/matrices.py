"""What the representation takes for what: class × class matrices of retrieval, as heat maps that are tables."""

from __future__ import annotations

import base64
import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from relatum.report.markup import Html, el, name_of
from relatum.report.page import Page, note, section, side_by_side
from relatum.report.runfolder import Run, Table
from relatum.report.words import data_title

DEPTHS = (10, 100, 1000)
MOST_NUMBERS = 25  # classes up to which a matrix is a table with numbers; beyond, a picture and the worst errors
WORST = 15


def errors(page: Page) -> Html:
    """The section of class × class matrices."""
    panels, words = [], []
    for run in page.runs:
        found = [_matrices(page, run, e) for e in run.evaluations if e["protocol"] == "retrieval"]
        made = [panel for panel in found if panel is not None]
        panels += made
        if not made:
            words.append(note(page, run, _why_no_matrix(run)))
    lead = (
        "Of the images retrieved for queries of each class (rows), the share of each class (columns), in percent."
        if panels
        else None
    )
    return section("errors", "What it takes for what", words, side_by_side(panels), lead=lead)


def _why_no_matrix(run: Run) -> str:
    if run.unlabelled or any(e["protocol"] == "retrieval" for e in run.evaluations):
        return "No class × class matrix: there are no labels to compare by."
    return "No class × class matrix yet: `relatum evaluate retrieval RUN --data DATA` measures it on labelled images."


def _matrices(page: Page, run: Run, evaluation: Table) -> Html | None:
    """One matrix per depth (top 10, 100, 1000) with buttons to switch; all of them are in the page and in print."""
    details = evaluation["details"]
    classes = [str(name) for name in details.get("classes", []) or run.info.get("classes") or []]
    made = []
    for depth, matrix in _found(details):
        if len(classes) != len(matrix):
            classes = [str(i) for i in range(len(matrix))]
        accuracy = details.get(f"top{depth}")
        accuracy = accuracy.get("accuracy") if isinstance(accuracy, dict) else accuracy
        shown = _table(matrix, classes) if len(matrix) <= MOST_NUMBERS else _large(page, matrix, classes)
        made.append((depth, accuracy, shown))
    if not made:
        return None
    name = f"m{len(page.data['matrices'])}-{page.runs.index(run)}-{evaluation['file']}"
    ident = "".join(c if c.isalnum() else "-" for c in name)
    tabs, sheets = [], []
    for i, (depth, accuracy, shown) in enumerate(made):
        word = f"Top {depth:,}" + (f": {accuracy:.1f} %" if isinstance(accuracy, int | float) else "")
        tabs.append(
            el(
                "button",
                word,
                type="button",
                role="tab",
                id=f"{ident}-t{i}",
                aria_controls=f"{ident}-p{i}",
                aria_selected="true" if i == 0 else "false",
                tabindex="0" if i == 0 else "-1",
            )
        )
        sheets.append(
            el(
                "div",
                el("h4", word, class_="print-only"),
                shown,
                role="tabpanel",
                id=f"{ident}-p{i}",
                aria_labelledby=f"{ident}-t{i}",
                class_="tabpanel",
            )
        )
    where = f"{evaluation.get('dataset', '')}-{evaluation.get('split', '')}"
    bar = el("div", tabs, role="tablist", aria_label="How many images are retrieved", class_="tabs")
    return el("article", page.run_heading(run, el("bdi", data_title(where))), bar, sheets, class_="panel")


def _found(details: Table) -> list[tuple[int, NDArray[np.float64]]]:
    """Depths and matrices in percent per row, wherever the result file keeps them."""
    result = []
    kept = details.get("matrices", {}) if isinstance(details.get("matrices"), dict) else {}
    for depth in DEPTHS:
        entry = details.get(f"top{depth}")
        inner = entry.get("matrix") if isinstance(entry, dict) else None
        raw = next(
            (
                m
                for m in (
                    kept.get(f"top{depth}"),
                    kept.get(str(depth)),
                    details.get(f"matrix{depth}"),
                    details.get(f"top{depth}_matrix"),
                    inner,
                )
                if m is not None
            ),
            None,
        )
        try:
            matrix = np.asarray(raw, np.float64)
        except (TypeError, ValueError):
            continue
        if matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1] >= 2 and np.isfinite(matrix).all():
            sums = matrix.sum(axis=1, keepdims=True)
            result.append((depth, 100 * np.divide(matrix, sums, out=np.zeros_like(matrix), where=sums > 0)))
    return result


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
    number = len(page.data["matrices"])
    page.data["matrices"].append({"classes": classes, "values": [[round(float(v), 2) for v in row] for row in matrix]})
    image = el(
        "img",
        src=uri,
        alt=f"Heat map of {n} × {n} classes; the largest errors are in the table beside it",
        class_="heat pixels",
        data_matrix=str(number),
        width=n,
        height=n,
    )
    return el(
        "div",
        el(
            "figure",
            image,
            el(
                "figcaption",
                "Rows: query; columns: found. Point at a cell to read it.",
                class_="readout",
                aria_live="off",
            ),
        ),
        _worst(matrix, classes, WORST),
        class_="large-matrix",
    )


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
