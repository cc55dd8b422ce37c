"""Analysis of a collection of images with a trained backbone: `duplicates`, `outliers`, `cluster` and `select`.

Image files are only read. The first call computes an index of the images and keeps it with the run; later calls are
immediate, and new images are added to it.
"""

from __future__ import annotations

import math
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from relatum import config
from relatum.api.runs import StrPath, architecture_of, data_name, note_unfinished, optional_path
from relatum.collection.rows import Album, DuplicateGroup, Outlier, Row, Selected, check_target, write_rows
from relatum.errors import InputError, require_positive
from relatum.system.torch_state import usual_torch_state

if TYPE_CHECKING:  # torch is imported when a backbone is loaded
    from torch import nn

    from relatum.collection.index import Index

R = TypeVar("R", bound=Row)


@usual_torch_state
def duplicates(
    run: StrPath | nn.Module,
    data: StrPath,
    *,
    out: StrPath | None = None,
    threshold: float | None = None,
    backbone: str | nn.Module | None = None,
    split: str = "train",
    device: str = "auto",
    root: StrPath | None = None,
    progress: bool = True,
) -> list[DuplicateGroup]:
    """Find groups of near-duplicates: exact copies, and copies that were re-encoded, resized or slightly changed.

    Args:
        run: run folder, weights file or module.
        data: folder of images or dataset name.
        out: file to write as well: `.csv`, `.json` or `.txt`.
        threshold: largest difference between copies, where they differ most; 0.18 by default, smaller is stricter.
        backbone: architecture of a run with a custom backbone: `module:function` or a module.
        split: split of a dataset.
        device: `auto`, `cpu`, `cuda` or `mps`.
        root: data root folder.
        progress: show a progress bar.
    """
    if threshold is not None and not (isinstance(threshold, Real) and 0 <= threshold < math.inf):
        raise InputError(f"threshold = {threshold!r} is out of range: it is a number of at least 0.")
    target = check_target(optional_path(out))
    index = _index(run, data, backbone, split, device, root, progress)
    from relatum.collection.duplicates import THRESHOLD, find_duplicates
    from relatum.collection.indexing import detail_reader, link_test

    files = index.files.tolist()
    groups = find_duplicates(
        index,
        detail=detail_reader(data, files),
        is_link=link_test(data, files),
        threshold=THRESHOLD if threshold is None else threshold,
    )
    names = [str(file) for file in index.files]
    result = [DuplicateGroup(tuple(names[i] for i in g.members), g.exact, g.difference) for g in groups]
    return _saved(result, target)


@usual_torch_state
def outliers(
    run: StrPath | nn.Module,
    data: StrPath,
    *,
    out: StrPath | None = None,
    top: int = 20,
    backbone: str | nn.Module | None = None,
    split: str = "train",
    device: str = "auto",
    root: StrPath | None = None,
    progress: bool = True,
) -> list[Outlier]:
    """Find the images that differ most from all others, the most unusual first.

    Images with the same thumbnail count as one.

    Args:
        run: run folder, weights file or module.
        data: folder of images or dataset name.
        out: file to write as well: `.csv`, `.json` or `.txt`.
        top: number of images to return.
        backbone: architecture of a run with a custom backbone: `module:function` or a module.
        split: split of a dataset.
        device: `auto`, `cpu`, `cuda` or `mps`.
        root: data root folder.
        progress: show a progress bar.
    """
    require_positive("top", top)
    target = check_target(optional_path(out))
    index = _index(run, data, backbone, split, device, root, progress)
    from relatum.collection.outliers import outlier_scores, ranked

    scores = outlier_scores(index.features, index.statistics, index.signatures)
    names = [str(file) for file in index.files]
    result = [
        Outlier(names[first], rank, float(scores[first]), tuple(names[i] for i in same))
        for rank, (first, *same) in enumerate(ranked(scores, index.signatures)[:top], 1)
    ]
    return _saved(result, target)


@usual_torch_state
def cluster(
    run: StrPath | nn.Module,
    data: StrPath,
    *,
    out: StrPath | None = None,
    number: int | None = None,
    method: str = "kmeans",
    seed: int = 1,
    backbone: str | nn.Module | None = None,
    split: str = "train",
    device: str = "auto",
    root: StrPath | None = None,
    progress: bool = True,
) -> list[Album]:
    """Group similar images, the largest group first. The title image of a group is the one nearest to its centre.

    Args:
        run: run folder, weights file or module.
        data: folder of images or dataset name.
        out: file to write as well: `.csv`, `.json` or `.txt`.
        number: number of clusters; by default chosen by the silhouette score.
        method: `kmeans`, or `hdbscan`, which leaves out images that belong to no dense group.
        seed: random seed.
        backbone: architecture of a run with a custom backbone: `module:function` or a module.
        split: split of a dataset.
        device: `auto`, `cpu`, `cuda` or `mps`.
        root: data root folder.
        progress: show a progress bar.
    """
    seed = config.seed(seed)
    if number is not None:
        require_positive("number", number)
    target = check_target(optional_path(out))
    index = _index(run, data, backbone, split, device, root, progress)
    from relatum.collection.clusters import find_clusters

    names = [str(file) for file in index.files]
    clusters = find_clusters(index.features, number=number, method=method, seed=seed)
    result = [Album(names[c.members[0]], tuple(names[i] for i in c.members)) for c in clusters]
    return _saved(result, target)


@usual_torch_state
def select(
    run: StrPath | nn.Module,
    data: StrPath,
    *,
    number: int,
    out: StrPath | None = None,
    backbone: str | nn.Module | None = None,
    split: str = "train",
    device: str = "auto",
    root: StrPath | None = None,
    progress: bool = True,
) -> list[Selected]:
    """Select a diverse subset that covers the images, for example for labelling (greedy k-centre).

    Args:
        run: run folder, weights file or module.
        data: folder of images or dataset name.
        number: size of the subset; all images if there are fewer.
        out: file to write as well: `.csv`, `.json` or `.txt`.
        backbone: architecture of a run with a custom backbone: `module:function` or a module.
        split: split of a dataset.
        device: `auto`, `cpu`, `cuda` or `mps`.
        root: data root folder.
        progress: show a progress bar.
    """
    require_positive("number", number)
    target = check_target(optional_path(out))
    index = _index(run, data, backbone, split, device, root, progress)
    from relatum.collection.selection import diverse_subset

    selected, radius = diverse_subset(index.features, number)
    result = [
        Selected(str(index.files[i]), rank, float(r))
        for rank, (i, r) in enumerate(zip(selected, radius, strict=True), 1)
    ]
    return _saved(result, target)


def _saved(rows: list[R], target: Path | None) -> list[R]:
    if target is not None:
        write_rows(target, rows)
    return rows


def _index(
    run: StrPath | nn.Module,
    data: StrPath,
    backbone: str | nn.Module | None,
    split: str,
    device: str,
    root: StrPath | None,
    progress: bool,
) -> Index:
    from relatum.collection.indexing import build_index

    note_unfinished(run, "used", show=progress)
    data_name(data)  # refuses what is no path
    architecture = architecture_of(run, backbone)
    return build_index(run, data, architecture=architecture, split=split, device=device, root=root, progress=progress)
