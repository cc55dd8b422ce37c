"""numba kernels of the fused relation head. Each handles a range of rows, serially and without the GIL.

A row's pairs lie one after another (see `pairs.ByRow`), so whatever is summed for a row is summed by one task in one
order: no atomics, no per-thread copies, and bits that do not depend on the number of threads. Partners are taken four at
a time, which quarters the traffic of the row's accumulator (1.9 → 1.4 ms for 63,488 pairs of 256 units on one core).

Float flags: sums may be reordered by the compiler (fixed at compile time), but NaN and infinity keep their meaning.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call"

from __future__ import annotations

import numpy as np
from numba import njit

_FLAGS = {"nogil": True, "cache": True, "fastmath": {"reassoc", "contract", "nsz"}, "error_model": "numpy"}
_ZERO = np.float32(0.0)


@njit(**_FLAGS)
def squares(left, right, start, partner, total, first, last):
    """total += Σ (left + right)² over the pairs of the left rows first..last."""
    hidden = left.shape[1]
    row_total = np.empty(hidden, np.float32)
    for row in range(first, last):
        a = left[row]
        row_total[:] = _ZERO
        at, end = start[row], start[row + 1]
        while at + 4 <= end:
            b0, b1, b2, b3 = right[partner[at]], right[partner[at + 1]], right[partner[at + 2]], right[partner[at + 3]]
            for u in range(hidden):
                h0, h1, h2, h3 = a[u] + b0[u], a[u] + b1[u], a[u] + b2[u], a[u] + b3[u]
                row_total[u] += (h0 * h0 + h1 * h1) + (h2 * h2 + h3 * h3)
            at += 4
        while at < end:
            b0 = right[partner[at]]
            for u in range(hidden):
                h0 = a[u] + b0[u]
                row_total[u] += h0 * h0
            at += 1
        for u in range(hidden):
            total[u] += row_total[u]


@njit(**_FLAGS)
def logits(left, right, w, slope, start, partner, out, first, last):
    """out[p] = w · leaky(left + right) for the pairs of the left rows first..last."""
    hidden = left.shape[1]
    for row in range(first, last):
        a = left[row]
        for at in range(start[row], start[row + 1]):
            b = right[partner[at]]
            logit = _ZERO
            for u in range(hidden):
                y = a[u] + b[u]
                logit += w[u] * max(y, slope * y)
            out[at] = logit


@njit(**_FLAGS)
def row_sums(mine, others, hidden_rows, g, slope, start, partner, place, add, out, x, y, first, last):
    """out[row] = Σ k over a row's pairs, k = g · leaky'(mine + others); x += hidden_rows · out, y += out.

    `place` says where a pair's g lies; with `add`, sums are added to what is there (sides that share weights).
    """
    hidden = mine.shape[1]
    k = np.empty(hidden, np.float32)
    for row in range(first, last):
        a = mine[row]
        k[:] = _ZERO
        at, end = start[row], start[row + 1]
        while at + 4 <= end:
            b0, b1, b2, b3 = others[partner[at]], others[partner[at + 1]], others[partner[at + 2]], others[partner[at + 3]]
            g0, g1, g2, g3 = g[place[at]], g[place[at + 1]], g[place[at + 2]], g[place[at + 3]]
            s0, s1, s2, s3 = slope * g0, slope * g1, slope * g2, slope * g3
            for u in range(hidden):
                c = -a[u]
                k[u] += ((g0 if b0[u] > c else s0) + (g1 if b1[u] > c else s1)) + (
                    (g2 if b2[u] > c else s2) + (g3 if b3[u] > c else s3)
                )
            at += 4
        while at < end:
            b0 = others[partner[at]]
            g0 = g[place[at]]
            s0 = slope * g0
            for u in range(hidden):
                k[u] += g0 if b0[u] > -a[u] else s0
            at += 1
        h = hidden_rows[row]
        result = out[row]
        for u in range(hidden):
            x[u] += np.float64(h[u]) * k[u]
            y[u] += k[u]
            result[u] = result[u] + k[u] if add else k[u]


@njit(**_FLAGS)
def row_gradients(mine, others, by_k, constant, by_h, start, partner, add, out, first, last):
    """out[row] = Σ ∂h over a row's pairs, ∂h = by_k · k + constant + by_h · (mine + others), where `out` holds Σ k.

    With `add`, only the last two terms are added: Σ k was taken for both sides together.
    """
    hidden = mine.shape[1]
    total = np.empty(hidden, np.float32)
    for row in range(first, last):
        total[:] = _ZERO
        at, end = start[row], start[row + 1]
        while at + 4 <= end:
            b0, b1, b2, b3 = others[partner[at]], others[partner[at + 1]], others[partner[at + 2]], others[partner[at + 3]]
            for u in range(hidden):
                total[u] += (b0[u] + b1[u]) + (b2[u] + b3[u])
            at += 4
        while at < end:
            b0 = others[partner[at]]
            for u in range(hidden):
                total[u] += b0[u]
            at += 1
        count = np.float32(end - start[row])
        a = mine[row]
        result = out[row]
        for u in range(hidden):
            k = result[u] if add else by_k[u] * result[u]
            result[u] = k + count * (constant[u] + by_h[u] * a[u]) + by_h[u] * total[u]
