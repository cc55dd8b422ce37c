"""Exact nearest neighbours in blocks: the full distance matrix is never held, and ties have one order.

Distances come from a float64 matrix product, which only proposes candidates: everything within its rounding error of
the k-th smallest. The candidates' distances are then computed term by term, as a brute-force search would, and sorted
by distance, then by index. The result equals brute force in float64 exactly, ties included.

Shape letters: Q queries, N gallery rows, d features, k neighbours.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from relatum.errors import InputError

METRICS = ("euclidean", "cosine")
_BLOCK_BYTES = 64 << 20  # of one block of the distance matrix; three such live at once
_EPSILON = float(np.finfo(np.float64).eps)

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
    g_norms = np.zeros(len(g)) if metric == "cosine" else np.einsum("nd,nd->n", g, g)
    search = _faiss(g, k) if backend == "faiss" else None
    distances, indices = np.empty((len(queries), k)), np.empty((len(queries), k), np.int64)
    rows = max(1, _BLOCK_BYTES // (8 * len(g)))
    for start in range(0, len(queries), rows):
        q = _prepared(queries[start : start + rows], metric)
        own = None if exclude is None else exclude[start : start + rows]
        proposed = search(q) if search else _propose(q, g, g_norms, k, own)
        for i, candidates in enumerate(proposed):
            if own is not None:
                candidates = candidates[candidates != own[i]]
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


def _propose(q: Floats, g: Floats, g_norms: Floats, k: int, own: NDArray[np.int64] | None) -> list[NDArray[np.int64]]:
    """Candidates of each query of a block: all rows that may be among its k nearest.

    |q − g|² = |q|² + |g|² − 2⟨q, g⟩; |q|² is left out, since it orders nothing (for cosine, `g_norms` is 0 for the same
    reason). A product of d terms is off by at most d·ε·|q||g| (Higham 2002, §3.1); four times that bound, for |g|² and
    the sums, is still far below any gap that matters.
    """
    approximate = q @ g.T
    approximate *= -2.0
    approximate += g_norms
    if own is not None:
        known = np.flatnonzero(own >= 0)
        approximate[known, own[known]] = np.inf
    q_norms = np.einsum("qd,qd->q", q, q)
    error = 4 * (g.shape[1] + 4) * _EPSILON * (1.0 + q_norms + g_norms.max())
    limit = np.partition(approximate, k - 1, axis=1)[:, k - 1] + 2 * error
    return [np.flatnonzero(row <= bound) for row, bound in zip(approximate, limit, strict=True)]


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


def _faiss(g: Floats, k: int) -> Callable[[Floats], list[NDArray[np.int64]]]:
    try:
        import faiss
    except ImportError:
        raise InputError(
            "the faiss backend is not installed; run `pip install relatum[faiss]` or leave it out."
        ) from None
    index = faiss.IndexFlatL2(g.shape[1])
    index.add(g.astype(np.float32))
    wanted = min(k + 1, len(g))  # one more, for the query itself

    def search(q: Floats) -> list[NDArray[np.int64]]:
        found: list[NDArray[np.int64]] = list(index.search(q.astype(np.float32), wanted)[1])
        return found

    return search
