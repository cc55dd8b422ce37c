"""Retrieval: the classes of the images that are nearest to query images.

The paper's protocol: 500 random images per class of the test set as queries, Euclidean distance, top 10, 100 and 1000.
The paper does not state the gallery; here it is the test set without the query itself (`gallery=train`: training set).
Queries are processed in blocks, so neither the distance matrix nor all neighbours are ever in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relatum import rng
from relatum.config.protocols import RetrievalSettings
from relatum.drawing import thumbnails
from relatum.errors import InputError
from relatum.evaluation.task import OFFLINE, Outcome, Task
from relatum.features.neighbours import nearest
from relatum.runs import artifacts
from relatum.system.progress import bar

TOPS = (10, 100, 1000)
_PICTURE_QUERIES, _PICTURE_TOP = 25, 10
_BLOCK = 1000  # queries whose neighbours are held at once: 16 MB at 1000 neighbours
_MOST_CLASSES = 200  # of a matrix inside the result file; larger ones are in a separate file
Indices = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Retrieved:
    """The images retrieved for the queries of each class, as counts.

    Attributes:
        tops: depth to the number of images really retrieved (fewer where the gallery is small).
        hits: depth to the mean share of the query's own class, in percent.
        matrices: depth to (C, C) percent: row = class of the query, column = class retrieved; 0 where no query was.
    """

    tops: dict[int, int]
    hits: dict[int, float]
    matrices: dict[int, NDArray[np.float64]]


def draw_queries(labels: Indices, per_class: int, seed: int) -> Indices:
    """Positions of at most `per_class` random images of each class, in ascending order."""
    queries = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        queries.append(members[rng.permutation(len(members), rng.QUERY, seed, int(label))[:per_class]])
    return np.sort(np.concatenate(queries))


def retrieve(
    queries: Floats,
    query_labels: Indices,
    gallery: Floats,
    gallery_labels: Indices,
    *,
    classes: int,
    exclude: Indices | None = None,
    tops: tuple[int, ...] = TOPS,
    backend: str = RetrievalSettings.backend,
    advance: Callable[..., None] = lambda steps: None,
) -> Retrieved:
    """Search the gallery for every query and count the classes of what is nearest.

    Args:
        queries: (Q, d) features.
        query_labels: (Q,).
        gallery: (N, d) features.
        gallery_labels: (N,).
        classes: C.
        exclude: (Q,) the gallery row that is the query itself.
        tops: depths.
        backend: `exact` or `faiss`.
        advance: called with the number of queries done.
    """
    available = len(gallery) - (exclude is not None)
    if available < 1:
        raise InputError("retrieval needs at least two images.")
    real = {top: min(top, available) for top in tops}
    counts = {top: np.zeros((classes, classes), np.int64) for top in tops}
    for start in range(0, len(queries), _BLOCK):
        part = slice(start, start + _BLOCK)
        excluded = None if exclude is None else exclude[part]
        _, index = nearest(
            queries[part], gallery, max(real.values()), exclude=excluded, backend=backend, advance=advance
        )
        pairs = query_labels[part][:, None] * classes + gallery_labels[index]
        for top, number in real.items():
            counts[top] += np.bincount(pairs[:, :number].ravel(), minlength=classes**2).reshape(classes, classes)
    totals = {top: counted.sum(1, keepdims=True) for top, counted in counts.items()}
    return Retrieved(
        real,
        {top: 100.0 * float(np.trace(counted)) / float(counted.sum()) for top, counted in counts.items()},
        {top: 100.0 * counted / np.maximum(totals[top], 1) for top, counted in counts.items()},
    )


def run(task: Task) -> Outcome:
    """The protocol, and the artifact with a few queries to look at; without labels only the latter."""
    settings: RetrievalSettings = task.settings
    test = task.test
    from_train = settings.gallery == "train"
    gallery = task.train if from_train else test
    z, gallery_z = task.features(test), task.features(gallery)
    _picture(task, z, gallery_z)
    facts: dict[str, Any] = {**OFFLINE, "distance": "euclidean", "n_gallery": len(gallery)}
    facts["excluded"] = "nothing" if from_train else "the query itself"
    trained = len(gallery) if from_train else 0
    if test.labels is None or gallery.labels is None:
        return Outcome(None, {"labels": "none, so there are no accuracies"}, {**facts, "n_queries": 0}, n_train=trained)
    draws = [draw_queries(test.labels, settings.queries_per_class, task.seed + i) for i in range(settings.seeds)]
    retrieved: list[Retrieved] = []
    with bar("retrieval", sum(map(len, draws)), show=task.progress) as advance:
        for queries in draws:
            result = retrieve(
                z[queries],
                test.labels[queries],
                gallery_z,
                gallery.labels,
                classes=test.num_classes,
                exclude=None if from_train else queries,
                backend=settings.backend,
                advance=advance,
            )
            retrieved.append(result)
    facts["n_queries"] = len(draws[0])
    details = _details(task, retrieved)
    return Outcome(details["top10"], details, facts, n_train=trained, n_test=len(draws[0]))


def _details(task: Task, retrieved: list[Retrieved]) -> dict[str, Any]:
    classes = task.test.classes
    details: dict[str, Any] = {"classes": list(classes)}
    matrices = {}
    for top in TOPS:
        values = [result.hits[top] for result in retrieved]
        details[f"top{top}"] = float(np.mean(values))
        if len(values) > 1:
            details[f"top{top}_std"] = float(np.std(values, ddof=1))
            details[f"top{top}_seeds"] = values
        matrices[f"top{top}"] = np.mean([result.matrices[top] for result in retrieved], axis=0)
    short = {f"top{top}": number for top, number in retrieved[0].tops.items() if number < top}
    if short:
        details["retrieved"] = short
        details["note"] = "the gallery has fewer images than the depth; all of it was retrieved"
    if len(classes) <= _MOST_CLASSES:
        details["matrices"] = {name: matrix.round(4).tolist() for name, matrix in matrices.items()}
    else:
        path = artifacts.save_matrices(task.run, task.stem, matrices)
        details["matrices_file"] = str(path.relative_to(task.run))
    return details


def _picture(task: Task, z: Floats, gallery_z: Floats) -> None:
    """Keep 25 random queries with their ten nearest images in RUN/artifacts, for the report and the paper's figure."""
    test, settings = task.test, task.settings
    gallery = task.train if settings.gallery == "train" else test
    queries = np.sort(rng.permutation(len(test), rng.QUERY, task.seed, -1)[:_PICTURE_QUERIES])
    excluded = None if settings.gallery == "train" else queries
    top = min(_PICTURE_TOP, len(gallery) - (excluded is not None))
    if top < 1:
        raise InputError(f"{test.name} contains a single image: there is nothing to retrieve.")
    distances, near = nearest(z[queries], gallery_z, top, exclude=excluded)
    # Positions in one list of images: the queries' set, followed by the gallery where it is another set.
    sets = [test] if excluded is not None else [test, gallery]
    near = near + (0 if excluded is not None else len(test))
    labels = (
        None
        if any(s.labels is None for s in sets)
        else np.concatenate([s.labels for s in sets if s.labels is not None])
    )
    files = None if any(s.files is None for s in sets) else [f for s in sets for f in s.files or ()]
    artifacts.save_retrieval(
        task.run,
        test.name,
        test.split,
        query_index=queries,
        neighbour_index=near,
        distances=distances,
        images=_Thumbnails([s.images for s in sets]),  # type: ignore[arg-type]
        labels=labels,
        classes=test.classes,
        names=files,
        tag=task.tag,
    )


class _Thumbnails:
    """Thumbnails that are computed when they are indexed: a gallery may be a memory map of gigabytes."""

    def __init__(self, sets: list[NDArray[np.uint8]]) -> None:
        self.sets = sets

    def __getitem__(self, index: Indices) -> NDArray[np.uint8]:
        reduced, start = [], 0
        for images in self.sets:
            mine = index[(index >= start) & (index < start + len(images))] - start
            reduced.append(thumbnails(images[mine]))
            start += len(images)
        side = min(t.shape[1] for t in reduced)
        return np.concatenate([thumbnails(t, side) for t in reduced])
