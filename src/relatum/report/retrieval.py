"""Retrieval: random queries, not chosen ones, with their nearest images, hits and misses framed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relatum import artifacts
from relatum.report.markup import Child, Html, el, name_of
from relatum.report.page import Page, note, section, side_by_side
from relatum.report.pictures import picture
from relatum.report.runfolder import Run
from relatum.report.words import data_title


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
            words.append(
                note(
                    page,
                    run,
                    "No nearest images yet: `relatum evaluate retrieval RUN --data DATA` finds them.",
                )
            )
    lead: Child = None
    if panels:
        lead = ["Queries drawn at random, not chosen, each with its nearest images by Euclidean distance. "]
        if labelled:
            lead += [
                "Frames: ",
                el("span", "same class", class_="hit-word"),
                " ",
                el("span", "another class", class_="miss-word"),
            ]
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
        if (
            thumbs.ndim != 4
            or near.ndim != 2
            or not len(query)
            or min(query.min(), near.min()) < 0
            or max(query.max(), near.max()) >= len(thumbs)
        ):
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
            items.append(
                el(
                    "li",
                    picture(
                        sheet.thumbs[place],
                        f"{word}{sheet.kind(place)}{far}",
                        44,
                        class_=frame,
                        title=f"{sheet.kind(place)}{far}",
                    ),
                )
            )
        caption = el("figcaption", name_of(sheet.kind(query)))
        subject = el(
            "figure", picture(sheet.thumbs[query], f"query: {sheet.kind(query)}", 44), caption, class_="subject"
        )
        rows.append(el("div", subject, el("ol", items, class_="near"), class_="query"))
    total = sheet.near.size
    share = (
        f"{hits} of these {total} are of the query’s class" if sheet.labelled else "no labels, so no hits and misses"
    )
    heading = page.run_heading(run, el("bdi", data_title(stem)), ": ", share)
    return el("article", heading, el("div", rows, class_="queries"), class_="panel")
