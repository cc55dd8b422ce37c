"""t-SNE: a map of the representations, with the paper's settings.

10,000 test images, 1000 iterations, Euclidean distances, random start, perplexity 30, learning rate 200. Coloured by
class, and by super-category where the dataset has one: vehicles against animals, or CIFAR-100's twenty coarse classes.
A folder without labels is coloured by sub-folder and by date.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relatum import rng
from relatum.collection.file_facts import width_height_time
from relatum.collection.groups import OTHER, date_groups, folder_groups, largest_groups
from relatum.config.protocols import TSNESettings
from relatum.data import sets
from relatum.data.imageset import ImageSet
from relatum.drawing import save_map, thumbnails
from relatum.errors import InputError
from relatum.evaluation.task import OFFLINE, Outcome, Task
from relatum.features.knn import knn_vote
from relatum.features.neighbours import nearest
from relatum.runs import artifacts
from relatum.runs.folder import RunFolder
from relatum.system.files import expand_user
from relatum.system.progress import bar

_VEHICLES = {"airplane", "automobile", "car", "ship", "truck"}
_ANIMALS = {"bird", "cat", "deer", "dog", "frog", "horse", "monkey"}
_SHOWN = 8  # neighbours in the space of representations that the report lists for a point
_KEPT = 10  # neighbours that the map is judged by
_EXAGGERATED = 250  # of the iterations, as in both libraries
_THUMB_BYTES = 32 << 20
Floats = NDArray[np.float32]
Indices = NDArray[np.int64]


class _Watcher(io.TextIOBase):
    """Reads scikit-learn's verbose lines (it has no callback) and turns them into progress."""

    def __init__(self, advance: Callable[..., None]) -> None:
        self.advance, self.done = advance, 0

    def write(self, text: str) -> int:
        """Take a line such as `[t-SNE] Iteration 50: error = ...`."""
        for iteration in re.findall(r"Iteration (\d+)", text):
            self.advance(max(0, int(iteration) - self.done))
            self.done = max(self.done, int(iteration))
        return len(text)


def embed_points(
    z: Floats,
    *,
    iterations: int = TSNESettings.iterations,
    perplexity: float = TSNESettings.perplexity,
    learning_rate: float = TSNESettings.learning_rate,
    seed: int = 1,
    backend: str = TSNESettings.backend,
    progress: bool = False,
) -> tuple[Floats, float, float]:
    """Positions (N, 2), the Kullback-Leibler divergence, and the perplexity used (at most a third of the points)."""
    used = min(perplexity, (len(z) - 1) / 3)
    fit = _opentsne if backend == "opentsne" else _sklearn
    state = rng.torch_seed(rng.PROBE, seed) & 0x7FFF_FFFF
    with bar("t-SNE", iterations, show=progress) as advance:
        xy, divergence = fit(z, iterations, used, learning_rate, state, advance)
    return xy, divergence, used


def _sklearn(
    z: Floats, iterations: int, perplexity: float, rate: float, state: int, advance: Callable[..., None]
) -> tuple[Floats, float]:
    from sklearn.manifold import TSNE

    model = TSNE(
        perplexity=perplexity,
        learning_rate=rate,
        max_iter=iterations,
        init="random",
        metric="euclidean",
        random_state=state,
        verbose=2,
    )
    model.set_output(transform="default")  # an array, also after `sklearn.set_config(transform_output="pandas")`
    with contextlib.redirect_stdout(_Watcher(advance)):
        xy = model.fit_transform(z)
    return np.ascontiguousarray(xy, np.float32), float(model.kl_divergence_)


def _opentsne(
    z: Floats, iterations: int, perplexity: float, rate: float, state: int, advance: Callable[..., None]
) -> tuple[Floats, float]:
    try:
        import openTSNE
    except ImportError:
        raise InputError("openTSNE is not installed; run `pip install openTSNE`, or leave backend out.") from None
    model = openTSNE.TSNE(
        perplexity=perplexity,
        learning_rate=rate,
        early_exaggeration_iter=_EXAGGERATED,
        n_iter=max(1, iterations - _EXAGGERATED),
        initialization="random",
        metric="euclidean",
        random_state=state,
        callbacks=lambda number, error, embedding: advance(50),
        callbacks_every_iters=50,
    )
    xy = model.fit(z)
    return np.ascontiguousarray(xy, np.float32), float(xy.kl_divergence)


def super_categories(task: Task, images: ImageSet) -> tuple[Indices, tuple[str, ...]] | None:
    """Numbers and names of the super-categories of a dataset, or None where it has none."""
    if images.labels is None:
        return None
    names = {name.lower() for name in images.classes}
    if names & _VEHICLES and names & _ANIMALS and names <= _VEHICLES | _ANIMALS:
        kinds = np.array([name.lower() in _ANIMALS for name in images.classes], np.int64)
        return kinds[images.labels], ("vehicles", "animals")
    dataset = sets.get(task.data) if task.data in sets.names() else None
    if dataset is not None and dataset.same_images and sets.get(dataset.same_images).classes < dataset.classes:
        coarse = replace(task, data=dataset.same_images).test
        if coarse.labels is not None and np.array_equal(coarse.images, images.images):
            return coarse.labels, coarse.classes
    return None


def run(task: Task) -> Outcome:
    """The protocol: a map, its pictures, and what the report needs to show it."""
    settings: TSNESettings = task.settings
    whole = task.test
    if len(whole) < 5:
        raise InputError(f"{whole.name} contains {len(whole)} images: a map needs at least 5.")
    points = np.sort(rng.permutation(len(whole), rng.QUERY, task.seed, -2)[: settings.points])
    kinds = super_categories(task, whole)
    images, z = whole.subset(points), task.features(whole)[points]
    xy, divergence, perplexity = embed_points(
        z,
        iterations=settings.iterations,
        perplexity=settings.perplexity,
        learning_rate=settings.learning_rate,
        seed=task.seed,
        backend=settings.backend,
        progress=task.progress,
    )
    every_point = np.arange(len(z))
    kept = min(_KEPT, len(z) - 1)
    _, near = nearest(z, z, kept, exclude=every_point)
    _, near_map = nearest(xy, xy, kept, exclude=every_point)
    details: dict[str, Any] = {
        "kl_divergence": divergence if divergence < 1e300 else None,  # what scikit-learn begins with
        "perplexity": perplexity,
        "neighbours_kept": 100.0
        * float(np.mean([len(np.intersect1d(a, b)) for a, b in zip(near, near_map, strict=True)]))
        / kept,
        "classes": list(images.classes),
    }
    if images.labels is not None:
        for name, neighbours in (("knn_in_map", near_map), ("knn_in_space", near)):
            details[name] = 100.0 * float((knn_vote(images.labels[neighbours]) == images.labels).mean())
    details["pictures"] = _keep(
        task, images, xy, near[:, :_SHOWN], None if kinds is None else (kinds[0][points], kinds[1])
    )
    facts = {**OFFLINE, "distance": "euclidean", "init": "random", "perplexity": perplexity, "n_points": len(z)}
    return Outcome(None, details, facts, n_test=len(z))


def _keep(
    task: Task, images: ImageSet, xy: Floats, near: Indices, kinds: tuple[Indices, tuple[str, ...]] | None
) -> list[str]:
    """Write the artifact and the pictures; their names, relative to the run."""
    side = 64 if len(images) * 64 * 64 * 3 <= _THUMB_BYTES else 32
    groups = _file_groups(task, images)
    artifacts.save_tsne(
        task.run,
        images.name,
        images.split,
        xy=xy,
        thumbs=thumbnails(images.images, side),
        neighbours=near,
        labels=images.labels,
        classes=images.classes,
        super_labels=None if kinds is None else kinds[0],
        super_names=() if kinds is None else kinds[1],
        names=images.files,
        folders=groups.get("folder"),
        dates=groups.get("date"),
        tag=task.tag,
    )
    stem = RunFolder(task.run).artifact(task.stem, ending="")
    title = f"{images.name}: {len(images):,} images"
    colourings: list[tuple[str, Indices | None, Sequence[str]]] = []
    if not groups:
        colourings.append(("", images.labels, images.classes))
    if kinds is not None:
        colourings.append(("super-category", *kinds))
    for name, labels in groups.items():
        texts, numbers = np.unique(labels, return_inverse=True)
        colourings.append((name, numbers.astype(np.int64), texts.tolist()))
    pictures = []
    for position, (name, numbers_of, names) in enumerate(colourings):
        place = stem.with_name(f"{stem.name}.{name.removesuffix('-category')}" if position else stem.name)
        pictures += save_map(place, xy, numbers_of, names, f"{title} by {name}" if name else title)
    return [str(path.relative_to(task.run)) for path in pictures]


def _file_groups(task: Task, images: ImageSet) -> dict[str, list[str]]:
    """The folder and the date of each file of an unlabelled folder, where they tell files apart."""
    place = expand_user(task.data)
    if images.labels is not None or images.files is None or not place.is_dir():
        return {}
    times = [_time(place / file) for file in images.files]
    groups = {"folder": folder_groups(images.files), "date": date_groups(np.array(times))}
    kept = {name: set(largest_groups(labels)) for name, labels in groups.items()}
    return {
        name: [label if label in kept[name] else OTHER for label in labels]
        for name, labels in groups.items()
        if len(kept[name]) > 1
    }


def _time(file: Path) -> int:
    """When a photograph was taken, else when its file was changed; 0 for an image of a shard."""
    taken = width_height_time(file)[2]
    if taken is not None:
        return taken
    try:
        return int(file.stat().st_mtime)
    except OSError:
        return 0
