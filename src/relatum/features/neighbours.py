"""Exact nearest neighbours in blocks: the full distance matrix is never held, and ties have one order.

Distances come from a float32 matrix product, which only proposes candidates: everything within its rounding error of
the k-th smallest. The candidates' distances are then computed term by term, as a brute-force search would, and sorted
by distance, then by index. The result equals brute force in float64 exactly, ties included.

Shape letters: Q queries, N gallery rows, d features, k neighbours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relatum.config.protocols import KNNSettings
from relatum.config.settings import choices
from relatum.errors import InputError

METRICS = choices(KNNSettings, "metric")
_BLOCK_BYTES = 64 << 20  # of one block of the distance matrix; three such live at once

Floats = NDArray[np.float64]
Neighbours = tuple[Floats, NDArray[np.int64]]


def nearest(
    queries: NDArray[np.floating],
    gallery: NDArray[np.floating],
    k: int,
    *,
    metric: str = "euclidean",
    exclude: NDArray[np.int64] | None = None,
    backend: str = "exact",
    advance: Callable[[int], None] | None = None,
) -> Neighbours:
    """The k nearest gallery rows of each query, nearest first, equal distances by index.

    Args:
        queries: (Q, d).
        gallery: (N, d).
        k: neighbours; at most N, less one where a row is excluded.
        metric: `euclidean`, or `cosine` (the distance is then 1 − similarity; a zero vector is similar to nothing).
        exclude: (Q,) the gallery row that is the query itself, never returned; -1 for none.
        backend: `exact`, or `faiss` (float32; neighbours whose distances agree to float32 may come in another order).
        advance: called with the number of queries done.

    Returns:
        Distances (Q, k) and indices (Q, k).
    """
    if metric not in METRICS:
        raise InputError(f"unknown metric '{metric}'; known: {', '.join(METRICS)}.")
    most = len(gallery) - (exclude is not None)
    if not 1 <= k <= most:
        raise InputError(f"{k} neighbours cannot be found among {most} images.")
    g = _prepared(gallery, metric)
    search = _faiss(g, k) if backend == "faiss" else _Proposer(g, k, metric)
    distances, indices = np.empty((len(queries), k)), np.empty((len(queries), k), np.int64)
    rows = max(1, _BLOCK_BYTES // (4 * len(g)))
    for start in range(0, len(queries), rows):
        q = _prepared(queries[start : start + rows], metric)
        excluded = None if exclude is None else exclude[start : start + rows]
        for i, candidates in enumerate(search(q, excluded)):
            if excluded is not None:
                candidates = candidates[candidates != excluded[i]]
            distances[start + i], indices[start + i] = _refine(q[i], g, candidates, k, metric)
        if advance is not None:
            advance(len(q))
    return distances, indices


def _prepared(x: NDArray[np.floating], metric: str) -> Floats:
    x64 = np.ascontiguousarray(x, np.float64)
    if metric == "cosine":
        norms = np.linalg.norm(x64, axis=1, keepdims=True)
        x64 = np.divide(x64, norms, out=np.zeros_like(x64), where=norms > 0)
    return x64


class _Proposer:
    """Candidates of each query of a block: all rows that may be among its k nearest.

    |q − g|² = |q|² + |g|² − 2⟨q, g⟩; |q|² is left out, since it orders nothing (and for cosine |g|² too). Centred on
    the gallery, so that a common offset of all features does not eat the digits. With unit roundoff u, a product of d
    terms is off by at most d·u·|q||g| (Higham 2002, §3.1), rounding the factors adds 2·u·|q||g|, the sums a few u more:
    in all less than 2·(d + 4)·u·(|q|² + |g|²). `eps` is 2u, so twice this bound is still left for safety.
    """

    def __init__(self, g: Floats, k: int, metric: str) -> None:
        self.k = k
        self.centre = np.zeros(g.shape[1]) if metric == "cosine" else g.mean(0)
        centred = g - self.centre
        norms = np.einsum("nd,nd->n", centred, centred)
        self.largest = float(norms.max())
        # Squares beyond float32's range would become infinite: such features are compared in float64.
        self.kind: type[np.floating[Any]] = np.float32 if self.largest < 1e30 else np.float64
        self.g = centred.astype(self.kind)
        self.norms = (np.zeros(len(g)) if metric == "cosine" else norms).astype(self.kind)

    def __call__(self, q: Floats, excluded: NDArray[np.int64] | None) -> list[NDArray[np.int64]]:
        q = q - self.centre
        squares = np.einsum("qd,qd->q", q, q)
        kind = self.kind if squares.max() < 1e30 else np.float64
        approximate = (-2.0 * q).astype(kind) @ self.g.T
        approximate += self.norms
        if excluded is not None:
            known = np.flatnonzero(excluded >= 0)
            approximate[known, excluded[known]] = np.inf
        error = 2 * (q.shape[1] + 4) * float(np.finfo(approximate.dtype).eps) * (squares + self.largest)
        error += float(np.finfo(np.float32).tiny)
        limit = _at_least_kth(approximate, self.k) + 2 * error
        bounds = np.nextafter(limit.astype(kind), np.inf, dtype=kind)  # rounded up, in the product's own type
        return [np.flatnonzero(row <= bound) for row, bound in zip(approximate, bounds, strict=True)]


def _at_least_kth(values: NDArray[Any], k: int) -> NDArray[Any]:
    """A bound of each row that at least k of its values do not exceed, close to the k-th smallest.

    The row is folded into strips; the k-th smallest of the minima over the strips is such a bound, since each minimum
    is a distinct value. Folding is one fast pass, and the slow selection sees a sixteenth of the row.
    """
    count = values.shape[1]
    strips = max(1, min(16, count // (4 * k)))
    width = count // strips
    smallest = values[:, :width].copy()
    for i in range(1, strips):
        np.minimum(smallest, values[:, i * width : (i + 1) * width], out=smallest)
    smallest.partition(k - 1, axis=1)
    return smallest[:, k - 1]


def _refine(query: Floats, g: Floats, candidates: NDArray[np.int64], k: int, metric: str) -> Neighbours:
    """The k nearest candidates by distances computed term by term (Euclidean ones are compared before the root)."""
    rows = g[candidates]
    if metric == "cosine":
        distance = 1.0 - (rows * query).sum(1)
    else:
        rows -= query
        distance = np.square(rows, out=rows).sum(1)
    order = np.lexsort((candidates, distance))[:k]
    nearest_first = distance[order]
    return nearest_first if metric == "cosine" else np.sqrt(nearest_first), candidates[order]


def _faiss(g: Floats, k: int) -> Callable[[Floats, NDArray[np.int64] | None], list[NDArray[np.int64]]]:
    try:
        import faiss
    except ImportError:
        raise InputError("the faiss backend is not installed; run `pip install faiss-cpu` or leave it out.") from None
    index = faiss.IndexFlatL2(g.shape[1])
    index.add(g.astype(np.float32))
    number = min(k + 1, len(g))  # one more, for the query itself

    def search(q: Floats, excluded: NDArray[np.int64] | None) -> list[NDArray[np.int64]]:
        return list(index.search(q.astype(np.float32), number)[1])

    return search
