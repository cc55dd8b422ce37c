"""Retrieval: random queries with their nearest images, and the class × class matrices of what was retrieved."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from relatum import artifacts
from relatum.report.markup import Child, Html, el, name_of
from relatum.report.page import Page, note, section, side_by_side
from relatum.report.pictures import picture
from relatum.report.runfolder import Run, Table

MOST_NUMBERS = 25  # classes up to which a matrix is a table with numbers; beyond, a picture and the worst errors
WORST = 15


def neighbours(page: Page) -> Html:
    """The section of queries and their nearest images."""
    panels, words, labelled = [], [], False
    for run in page.runs:
        shown = 0
        for path in run.artifact_files("retrieval"):
            arrays = run.load(path, "query_index", "neighbour_index", "thumbs")
            sheet = _Sheet.read(arrays) if arrays is not None else None
            if sheet is None:
                continue
            labelled |= sheet.labelled
            panels.append(_sheet_panel(page, run, path.stem.removeprefix("retrieval-"), sheet))
            shown += 1
        if not shown:
            words.append(note(page, run, "No retrieval yet: `relatum evaluate retrieval RUN --data DATA` writes queries and their nearest images."))
    lead: Child = None
    if panels:
        lead = ["Queries drawn at random, not chosen, each with its nearest images by Euclidean distance. "]
        if labelled:
            lead += [el("span", "same class", class_="hit-word"), " and ", el("span", "another class", class_="miss-word"), " are framed."]
    return section("retrieval", "Nearest images", words, side_by_side(panels), lead=lead)


class _Sheet:
    """A retrieval artifact with positions in `thumbs` instead of positions in the gallery."""

    def __init__(self, query: NDArray[Any], near: NDArray[Any], arrays: artifacts.Arrays) -> None:
        count = len(arrays["thumbs"])
        labels = arrays.get("labels", np.zeros(0))
        self.query, self.near, self.thumbs = query, near, arrays["thumbs"]
        self.distances = arrays.get("distances")
        self.labels = labels if len(labels) == count else np.full(count, -1)
        self.classes = [str(name) for name in arrays.get("classes", ())]
        names = arrays.get("names", np.zeros(0))
        self.names = names if len(names) == count else None
        self.numbers = arrays.get("image_index", np.arange(count))
        self.labelled = bool((self.labels >= 0).any())

    @classmethod
    def read(cls, arrays: artifacts.Arrays) -> _Sheet | None:
        query, near, thumbs = arrays["query_index"], arrays["neighbour_index"], arrays["thumbs"]
        used = arrays.get("image_index")
        if used is not None:
            place = {int(number): i for i, number in enumerate(used)}
            query = np.array([place.get(int(q), -1) for q in query])
            near = np.array([[place.get(int(n), -1) for n in row] for row in near]).reshape(near.shape)
        if thumbs.ndim != 4 or near.ndim != 2 or not len(query) or min(query.min(), near.min()) < 0 or max(query.max(), near.max()) >= len(thumbs):
            return None
        return cls(query, near, arrays)

    def name(self, i: int) -> str:
        """The class, or the file's name, or the image's number."""
        if self.names is not None:
            return str(self.names[i])
        label = int(self.labels[i])
        return self.classes[label] if 0 <= label < len(self.classes) else f"image {int(self.numbers[i])}"

    def kind(self, i: int) -> str:
        """Class first where there is one, then the name."""
        label = int(self.labels[i])
        class_name = self.classes[label] if 0 <= label < len(self.classes) else ""
        return " · ".join(dict.fromkeys(filter(None, (class_name, self.name(i)))))


def _sheet_panel(page: Page, run: Run, stem: str, sheet: _Sheet) -> Html:
    rows = []
    hits = 0
    for q in range(len(sheet.query)):
        query = int(sheet.query[q])
        items = []
        for rank, place in enumerate(int(i) for i in sheet.near[q]):
            same = sheet.labelled and sheet.labels[place] == sheet.labels[query]
            hits += bool(same)
            frame = ("hit" if same else "miss") if sheet.labelled else "plain"
            far = f", distance {float(sheet.distances[q, rank]):.3g}" if sheet.distances is not None else ""
            word = {"hit": "same class: ", "miss": "another class: ", "plain": ""}[frame]
            items.append(el("li", picture(sheet.thumbs[place], f"{word}{sheet.kind(place)}{far}", 44, class_=frame, title=f"{sheet.kind(place)}{far}")))
        caption = el("figcaption", name_of(sheet.kind(query)))
        subject = el("figure", picture(sheet.thumbs[query], f"query: {sheet.kind(query)}", 44), caption, class_="subject")
        rows.append(el("div", subject, el("ol", items, class_="near"), class_="query"))
    total = sheet.near.size
    share = f"{hits} of these {total} are of the query’s class" if sheet.labelled else "no labels, so no hits and misses"
    heading = page.run_heading(run, el("bdi", stem), ": ", share)
    return el("article", heading, el("div", rows, class_="queries"), class_="panel")


# ---------------------------------------------------------------------------------------------------------- matrices


def errors(page: Page) -> Html:
    """The section of class × class matrices."""
    panels, words = [], []
    for run in page.runs:
        made = [_matrices(page, run, e) for e in run.evaluations if e["protocol"] == "retrieval"]
        made = [panel for panel in made if panel is not None]
        panels += made
        if not made:
            words.append(note(page, run, _why_no_matrix(run)))
    lead = "Of the images retrieved for queries of each class (rows), the share of each class (columns), in percent." if panels else None
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
        tabs.append(el("button", word, type="button", role="tab", id=f"{ident}-t{i}", aria_controls=f"{ident}-p{i}", aria_selected="true" if i == 0 else "false", tabindex="0" if i == 0 else "-1"))
        sheets.append(el("div", el("h4", word, class_="print-only"), shown, role="tabpanel", id=f"{ident}-p{i}", aria_labelledby=f"{ident}-t{i}", class_="tabpanel"))
    where = f"{evaluation.get('dataset', '')}-{evaluation.get('split', '')}"
    bar = el("div", tabs, role="tablist", aria_label="How many images are retrieved", class_="tabs")
    return el("article", page.run_heading(run, el("bdi", where)), bar, sheets, class_="panel")


def _found(details: Table) -> list[tuple[int, NDArray[np.float64]]]:
    """Depths and matrices in percent per row, wherever the result file keeps them."""
    result = []
    kept = details.get("matrices", {}) if isinstance(details.get("matrices"), dict) else {}
    for depth in (10, 100, 1000):
        entry = details.get(f"top{depth}")
        inner = entry.get("matrix") if isinstance(entry, dict) else None
        raw = next((m for m in (kept.get(f"top{depth}"), kept.get(str(depth)), details.get(f"matrix{depth}"), details.get(f"top{depth}_matrix"), inner) if m is not None), None)
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
    head = el("tr", el("td", "query ↓ found →", class_="corner"), [el("th", el("span", name_of(c)), scope="col") for c in classes])
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
    low, hit, miss = np.array([247, 246, 243]), np.array([20, 93, 160]), np.array([196, 88, 10])
    tint = np.where(np.eye(n, dtype=bool)[..., None], hit, miss)
    pixels = (low + (tint - low) * heat[..., None]).round().astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    uri = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
    number = len(page.data["matrices"])
    page.data["matrices"].append({"classes": classes, "values": [[round(float(v), 2) for v in row] for row in matrix]})
    image = el("img", src=uri, alt=f"Heat map of {n} × {n} classes; the largest errors are in the table beside it", class_="heat pixels", data_matrix=str(number), width=n, height=n)
    return el("div", el("figure", image, el("figcaption", "Rows: query; columns: found. Point at a cell to read it.", class_="readout", aria_live="off")), _worst(matrix, classes, WORST), class_="large-matrix")


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
