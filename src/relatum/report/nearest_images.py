"""Retrieval: queries drawn at random with their nearest images, framed by whether the class is the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from relatum.report.page import Page, Panel, Section, artifact_panels
from relatum.report.thumbnails import thumbnail
from relatum.runs.artifacts import Arrays
from relatum.runs.reading import RunRecord
from relatum.system.text import distance_text

SIZE = 44
MAX_QUERIES, MAX_NEAR = 50, 50  # relatum writes 10 of each


def nearest_images(page: Page) -> Section:
    """The section of queries and their nearest images."""
    needed = ("query_index", "neighbour_index", "thumbs")
    reason = "No nearest images yet. Run `relatum evaluate retrieval RUN --data DATA`."
    panels, reasons = artifact_panels(page, "retrieval", needed, _panel, lambda run: reason)
    lead = "Queries drawn at random, each with its nearest images by Euclidean distance between representations."
    return Section("retrieval", "Nearest images", "Nearest images", panels, lead, reasons)


def _panel(page: Page, run: RunRecord, path: Path, arrays: Arrays) -> Panel:
    images = _Images(arrays)
    distances = arrays.get("distances")
    queries, frames = [], []
    rows = zip(arrays["query_index"][:MAX_QUERIES], arrays["neighbour_index"][:MAX_QUERIES, :MAX_NEAR], strict=True)
    for q, (query, row) in enumerate(rows):
        subject = images.position[int(query)]
        near = []
        for rank, number in enumerate(row):
            i = images.position[int(number)]
            text = images.caption(i) + (
                f", distance {distance_text(float(distances[q, rank]))}" if distances is not None else ""
            )
            frame = images.frame(subject, i)
            alt = {"hit": "same class: ", "miss": "another class: ", "plain": ""}[frame] + text
            near.append({"frame": frame, "image": thumbnail(images.thumbs[i], alt, SIZE, text)})
            frames.append(frame)
        caption = images.caption(subject)
        image = thumbnail(images.thumbs[subject], f"query: {caption}", SIZE)
        queries.append({"image": image, "caption": caption, "near": near})
    stem = path.stem.removeprefix("retrieval-")
    return {
        "stem": stem,
        "queries": queries,
        "labelled": images.labelled,
        "hits": frames.count("hit"),
        "n": len(frames),
    }


class _Images:
    """The images of a retrieval artifact; `position` maps their numbers in the gallery to positions in `thumbs`."""

    def __init__(self, arrays: Arrays) -> None:
        self.thumbs, count = arrays["thumbs"], len(arrays["thumbs"])
        self.numbers = arrays.get("image_index", np.arange(count))
        self.position = {int(number): i for i, number in enumerate(self.numbers)}
        labels, names = arrays.get("labels", np.zeros(0)), arrays.get("names", np.zeros(0))
        self.labels = labels if len(labels) == count else np.full(count, -1)
        self.names = names if len(names) == count else None
        self.classes = [str(name) for name in arrays.get("classes", ())]
        self.labelled = bool((self.labels >= 0).any())

    def caption(self, i: int) -> str:
        """The class and the file name if there are any, else the image's number."""
        label = int(self.labels[i])
        parts = [self.classes[label]] if 0 <= label < len(self.classes) else []
        parts += [str(self.names[i])] if self.names is not None else []
        return " · ".join(parts) or f"image {int(self.numbers[i])}"

    def frame(self, query: int, other: int) -> str:
        """`hit` for the same class, `miss` for another, `plain` without labels."""
        if not self.labelled:
            return "plain"
        return "hit" if self.labels[query] == self.labels[other] else "miss"
