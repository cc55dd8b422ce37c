"""Clusters of images, each with a title image: the one nearest to its centre."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relatum import rng
from relatum.collection.scaling import standardise
from relatum.errors import InputError

METHODS = ("kmeans", "hdbscan")
_NUMBERS = (3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)  # numbers of clusters that are compared
_IMAGES = 8  # each cluster should have at least this many on average,
_ALBUM = 150  # and at most this many, since the silhouette alone prefers a few large clusters
_SAMPLE = 2000  # images used for the comparison
_COMPONENTS = 32  # principal components: beyond these, distances are mostly noise


@dataclass(frozen=True)
class Cluster:
    """A cluster: image numbers from the centre outwards, so the first is its title image, and their distances."""

    members: tuple[int, ...]
    distances: tuple[float, ...]


def find_clusters(
    features: NDArray[np.float32], *, number: int | None = None, method: str = "kmeans", seed: int = 1
) -> list[Cluster]:
    """Clusters of representations, the largest first.

    Args:
        features: (N, d) representations.
        number: number of clusters; by default the one with the best mean silhouette among a few, of 8 to 150 images on
            average.
        method: `kmeans`, or `hdbscan`, which finds dense groups and leaves other images out.
        seed: random seed of k-means.
    """
    if method not in METHODS:
        raise InputError(f"unknown clustering method '{method}'; known: {', '.join(METHODS)}.")
    if number is not None and not 1 <= number <= len(features):
        raise InputError(f"{len(features)} images cannot be divided into {number} clusters.")
    if method == "hdbscan" and number is not None:
        raise InputError("hdbscan finds the number of clusters itself: leave the number out, or use kmeans.")
    points = _points(features)
    labels = _hdbscan(points) if method == "hdbscan" else _kmeans(points, number or _best_number(points, seed), seed)
    clusters = []
    for label in range(int(labels.max()) + 1):
        members = np.flatnonzero(labels == label)
        if len(members):
            distances = np.linalg.norm(points[members] - points[members].mean(0), axis=1)
            order = np.argsort(distances, kind="stable")
            clusters.append(Cluster(tuple(members[order].tolist()), tuple(distances[order].tolist())))
    return sorted(clusters, key=lambda cluster: (-len(cluster.members), cluster.members))


def _points(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """The largest principal components of the standardised representations, scaled to unit length."""
    z = standardise(features)
    if min(z.shape) > _COMPONENTS:
        _, vectors = np.linalg.eigh(z.T.astype(np.float64) @ z)
        z = z @ vectors[:, ::-1][:, :_COMPONENTS].astype(np.float32)
    return np.asarray(z / np.maximum(np.linalg.norm(z, axis=1, keepdims=True), 1e-6), np.float32)


def _kmeans(points: NDArray[np.float32], number: int, seed: int) -> NDArray[np.int64]:
    import torch

    from relatum.features.clustering import kmeans

    labels: NDArray[np.int64] = kmeans(torch.from_numpy(points), number, seed)[1].numpy()
    return labels


def _best_number(points: NDArray[np.float32], seed: int) -> int:
    from sklearn.metrics import silhouette_score

    numbers = [n for n in _NUMBERS if n * _IMAGES <= len(points)]
    if not numbers:
        return 1
    numbers = [n for n in numbers if n * _ALBUM >= len(points)] or numbers[-1:]
    sample = points[np.sort(rng.permutation(len(points), rng.QUERY, seed, -3)[:_SAMPLE])]
    scores = {}
    for number in numbers:
        labels = _kmeans(sample, number, seed)
        if 1 < len(np.unique(labels)) < len(sample):
            scores[number] = float(silhouette_score(sample, labels))
    return max(scores, key=lambda n: (scores[n], -n)) if scores else 1


def _hdbscan(points: NDArray[np.float32]) -> NDArray[np.int64]:
    from sklearn.cluster import HDBSCAN

    if len(points) < _IMAGES:
        return np.zeros(len(points), np.int64)
    labels: NDArray[np.int64] = HDBSCAN(min_cluster_size=_IMAGES, copy=True).fit(points).labels_.astype(np.int64)
    return labels
