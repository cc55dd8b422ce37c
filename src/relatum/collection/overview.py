"""Everything that the page of a collection shows, computed from its index."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relatum.collection.clusters import find_clusters
from relatum.collection.duplicates import Detail, Group, LinkTest, find_duplicates
from relatum.collection.groups import folder_groups
from relatum.collection.index import Index
from relatum.collection.maps import Points, maps
from relatum.collection.outliers import outlier_scores, ranked
from relatum.collection.scaling import standardise
from relatum.data.imageset import Skipped
from relatum.features.neighbours import nearest

MAX_IMAGES = 6000  # on one page; beyond, an even sample with all duplicates and outliers
_OUTLIERS = 24
_NEIGHBOURS = 12


@dataclass(frozen=True)
class Overview:
    """A collection as the page shows it; all image numbers count the rows of `files`.

    Attributes:
        files: paths relative to the folder.
        times: seconds since 1970.
        sizes: (N, 2) width and height.
        total: number of images in the folder; more than N if the page shows a sample.
        maps: positions (N, 2) by the name of the method.
        neighbours: (N, k) nearest images, nearest first.
        clusters: image numbers from the centre outwards, the largest cluster first.
        duplicates: groups of near-duplicates.
        outliers: image numbers, the most unusual first.
        skipped: files that could not be read, with the reason.
    """

    files: list[str]
    times: NDArray[np.int64]
    sizes: NDArray[np.int64]
    total: int
    maps: dict[str, Points]
    neighbours: NDArray[np.int64]
    clusters: list[list[int]]
    duplicates: list[Group]
    outliers: list[int]
    skipped: tuple[Skipped, ...]

    @property
    def folders(self) -> list[str]:
        """The folder of each file, for the colours of the map."""
        return folder_groups(self.files)


def overview(index: Index, *, seed: int = 1, detail: Detail | None = None, is_link: LinkTest | None = None) -> Overview:
    """Compute everything; a collection that is too large for a page is sampled after duplicates and outliers.

    Args:
        index: of the collection.
        seed: random seed of clusters and maps.
        detail: reads images in detail, to tell near-duplicates from look-alikes (`duplicates.near_duplicates`).
        is_link: whether an image is a symbolic link, as there.
    """
    groups = find_duplicates(index, detail=detail, is_link=is_link)
    order = _outliers(index, groups)
    clusters = find_clusters(index.features, seed=seed)
    shown = _shown(len(index), groups, order)
    place = {int(number): i for i, number in enumerate(shown)}
    part = index if len(shown) == len(index) else index.rows(shown.tolist())
    z = standardise(part.features)
    k = min(_NEIGHBOURS, len(part) - 1)
    near = nearest(z, z, k, exclude=np.arange(len(z)))[1] if k else np.zeros((len(part), 0), np.int64)
    return Overview(
        files=[str(file) for file in part.files],
        times=part.times,
        sizes=part.sizes,
        total=len(index),
        maps=maps(part.features, seed),
        neighbours=near,
        clusters=[[place[i] for i in c.members if i in place] for c in clusters],
        duplicates=[Group(tuple(place[i] for i in g.members), g.exact, g.difference) for g in groups],
        outliers=[place[int(i)] for i in order],
        skipped=index.skipped,
    )


def _outliers(index: Index, groups: list[Group]) -> NDArray[np.int64]:
    """The most unusual images; of near-duplicates, and of images with the same thumbnail, only the first."""
    scores = outlier_scores(index.features, index.statistics, index.signatures)
    scores[[i for group in groups for i in group.members[1:]]] = -np.inf
    order = np.array([first for first, *_ in ranked(scores, index.signatures)[:_OUTLIERS]], np.int64)
    return order[np.isfinite(scores[order])]


def _shown(count: int, groups: list[Group], outliers: NDArray[np.int64]) -> NDArray[np.int64]:
    if count <= MAX_IMAGES:
        return np.arange(count)
    sample = np.linspace(0, count - 1, MAX_IMAGES).round().astype(np.int64)
    copies = np.array([i for group in groups for i in group.members], np.int64)
    return np.unique(np.concatenate([sample, copies, outliers]))
