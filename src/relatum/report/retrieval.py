"""Retrieval: random queries, not chosen ones, with their nearest images, hits and misses framed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from relatum.report.markup import Html, el, name_of
from relatum.report.page import Page, filled, side_by_side
from relatum.report.pictures import picture
from relatum.report.runfolder import Run
from relatum.report.words import data_title
from relatum.runs import artifacts


def neighbours(page: Page) -> Html | None:
    """The section of queries and their nearest images."""
    panels, words = [], []
    for run in page.runs:
        files, needed = run.artifact_files("retrieval"), ("query_index", "neighbour_index", "thumbs")
        made = [run.show(path, needed, partial(_panel, page, run, path)) for path in files]
        panels += [panel for panel in made if panel is not None]
        if not any(made):
            words.append((run, "No nearest images yet: `relatum evaluate retrieval RUN --data DATA` finds them."))
    lead = "Queries drawn at random, not chosen, each with its nearest images by Euclidean distance."
    return filled(page, "retrieval", "Nearest images", words, side_by_side(panels), lead)


class _Sheet:
    """A retrieval artifact, with places in `thumbs` instead of positions in the gallery."""

    def __init__(self, arrays: artifacts.Arrays) -> None:
        self.thumbs, count = arrays["thumbs"], len(arrays["thumbs"])
        self.numbers = arrays.get("image_index", np.arange(count))
        place = {int(number): i for i, number in enumerate(self.numbers)}
        self.query = [place[int(q)] for q in arrays["query_index"]]
        self.near = [[place[int(n)] for n in row] for row in arrays["neighbour_index"]]
        self.distances = arrays.get("distances")
        labels, names = arrays.get("labels", np.zeros(0)), arrays.get("names", np.zeros(0))
        self.labels = labels if len(labels) == count else np.full(count, -1)
        self.names = names if len(names) == count else None
        self.classes = [str(name) for name in arrays.get("classes", ())]
        self.labelled = bool((self.labels >= 0).any())

    def name(self, i: int) -> str:
        """The class where there is one, and the file's name, or else the image's number."""
        label = int(self.labels[i])
        words = [self.classes[label]] if 0 <= label < len(self.classes) else []
        words += [str(self.names[i])] if self.names is not None else []
        return " · ".join(words) or f"image {int(self.numbers[i])}"

    def frame(self, query: int, found: int) -> str:
        """Whether it is a hit or a miss; without labels neither."""
        if not self.labelled:
            return "plain"
        return "hit" if self.labels[query] == self.labels[found] else "miss"

    def found(self, q: int, rank: int) -> Html:
        """One of the nearest images, as an item of a list."""
        place = self.near[q][rank]
        frame = self.frame(self.query[q], place)
        far = f", distance {float(self.distances[q, rank]):.3g}" if self.distances is not None else ""
        words = f"{self.name(place)}{far}"
        alt = {"hit": "same class: ", "miss": "another class: ", "plain": ""}[frame] + words
        return el("li", picture(self.thumbs[place], alt, 44, class_=frame, title=words))


def _panel(page: Page, run: Run, path: Path, arrays: artifacts.Arrays) -> Html:
    sheet = _Sheet(arrays)
    rows = []
    for q, query in enumerate(sheet.query):
        image = picture(sheet.thumbs[query], f"query: {sheet.name(query)}", 44)
        subject = el("figure", image, el("figcaption", name_of(sheet.name(query))), class_="subject")
        near = el("ol", [sheet.found(q, rank) for rank in range(len(sheet.near[q]))], class_="near")
        rows.append(el("div", subject, near, class_="query"))
    frames = [sheet.frame(query, i) for query, row in zip(sheet.query, sheet.near, strict=True) for i in row]
    share = f"{frames.count('hit')} of these {len(frames)} are of the query’s class"
    share = share if sheet.labelled else "no labels, so no hits and misses"
    words = [el("span", "same class", class_="hit-word"), " ", el("span", "another class", class_="miss-word")]
    heading = page.run_heading(run, el("bdi", data_title(path.stem.removeprefix("retrieval-"))), ": ", share)
    legend = el("p", words, class_="small frames") if sheet.labelled else None
    return el("article", heading, legend, el("div", rows, class_="queries"), class_="panel")
