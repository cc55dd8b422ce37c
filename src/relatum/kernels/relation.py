"""The kernels of the relation head's passes over pairs. Called by `relatum.relation.compiled`.

Specification: `relatum.relation.reference`. Tests compare losses and gradients in float64.

Each kernel processes a range of rows on one thread. The pairs of a row are adjacent (see `pairs.ByRow`), so a row is
summed by one thread in one order: without atomics or copies per thread, and with bits that do not depend on the number
of threads. Four partners are processed at a time, which saves three of four loads and stores of the row's accumulator
(1.9 → 1.4 ms for 63,488 pairs of 256 units on one core).

The compiler may reorder sums (once, when it compiles), but NaN and infinity propagate.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,assignment"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from relatum.kernels.caching import cached_njit

_MATHS: dict[str, Any] = {"fastmath": {"reassoc", "contract", "nsz"}, "error_model": "numpy"}
_kernel = cached_njit(**_MATHS)
_inline = njit(inline="always", **_MATHS)
_ZERO, _HALF, _ONE = np.float32(0.0), np.float32(0.5), np.float32(1.0)


@_kernel
def centred(features, left_start, right_start, centre, out, means):
    """Subtract the mean row `centre` from the features; `means` are the remaining means over left and right rows."""
    rows, width = features.shape
    total = np.zeros(width)
    for row in range(rows):
        z = features[row]
        for u in range(width):
            total[u] += z[u]
    for u in range(width):
        centre[u] = total[u] / rows
    for row in range(rows):
        z, c = features[row], out[row]
        n_left, n_right = left_start[row + 1] - left_start[row], right_start[row + 1] - right_start[row]
        for u in range(width):
            c[u] = z[u] - centre[u]
            means[0, u] += n_left * np.float64(c[u])
            means[1, u] += n_right * np.float64(c[u])
    means /= left_start[-1]


@_kernel
def squares(left, right, start, partner, total, first, last):
    """Add to `total` Σ (left + right)² over the pairs of the left rows first..last."""
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


@_kernel
def logits(left, right, scale, shift, w, bias, slope, start, partner, out, first, last):
    """out[p] = w · leaky(scale · (left + right) + shift) + bias for the pairs of the left rows first..last."""
    hidden = left.shape[1]
    a = np.empty(hidden, np.float32)
    for row in range(first, last):
        for u in range(hidden):
            a[u] = left[row, u] * scale[u] + shift[u]
        for at in range(start[row], start[row + 1]):
            b = right[partner[at]]
            logit = _ZERO
            for u in range(hidden):
                y = a[u] + b[u] * scale[u]
                logit += w[u] * max(y, slope * y)
            out[at] = logit + bias


@_inline
def _exp(x):
    """exp(x) for x <= 0 to float32's precision, at least 1e-38. Branch-free, so that loops over it vectorise."""
    x = max(x, np.float32(-87.0))
    n = np.rint(x * np.float32(1.4426950408889634))
    r = (x - n * np.float32(0.693359375)) - n * np.float32(-2.12194440e-4)  # ln 2 in two parts; |r| <= ln(2) / 2
    # Taylor by Horner; the next term is below 6e-9.
    p = np.float32(1 / 120) + r * (np.float32(1 / 720) + r * np.float32(1 / 5040))
    p = _ONE + r * (_ONE + r * (_HALF + r * (np.float32(1 / 6) + r * (np.float32(1 / 24) + r * p))))
    return p * np.int32((np.int32(n) + 127) << 23).view(np.float32)


@_inline
def _log1p(x):
    """log(1 + x) for 0 <= x <= 1 as 2 artanh(x / (2 + x)); the first term left out is below 2e-9 of the result."""
    s = x / (x + np.float32(2.0))
    t = s * s
    p = np.float32(1 / 9) + t * (np.float32(1 / 11) + t * (np.float32(1 / 13) + t * np.float32(1 / 15)))
    p = _ONE + t * (np.float32(1 / 3) + t * (np.float32(1 / 5) + t * (np.float32(1 / 7) + t * p)))
    return np.float32(2.0) * s * p


@_kernel
def losses(logits, targets, gamma, focal, g):
    """Summed loss of some pairs, with g = its derivative by each logit (both still to be divided by P).

    Also returns how many positives and how many negatives are classified correctly. See `reference.focal_bce`.
    """
    total, right_positives, right_negatives = 0.0, 0, 0
    for at in range(len(logits)):
        sign = targets[at] + targets[at] - _ONE
        m = logits[at] * sign
        e = _exp(-abs(m))
        log_sum = _log1p(e)
        log_p = (m - abs(m)) * _HALF - log_sum  # log σ(m); min(m, 0) is written so that NaN stays NaN
        p, q = (_ONE if m > _ZERO else e) / (_ONE + e), (e if m > _ZERO else _ONE) / (_ONE + e)  # σ(m), σ(-m)
        power = _exp(gamma * ((-m - abs(m)) * _HALF - log_sum)) * _HALF  # ½ q^γ
        weight = power if focal else _ONE
        slope = gamma * p * log_p if focal else _ZERO
        total -= np.float64(weight * log_p)
        g[at] = weight * (slope - q) * sign
    for at in range(len(logits)):
        right_positives += np.int64((logits[at] > _ZERO) & (targets[at] > _HALF))
        right_negatives += np.int64((not logits[at] > _ZERO) & (targets[at] < _HALF))
    return total, right_positives, right_negatives


@_kernel
def row_sums(mine, others, scale, shift, g, slope, start, partner, place, add, out, x, y, first, last):
    """out[row] = Σ k over a row's pairs, k = g · leaky'(scale · (mine + others) + shift); x += mine · out, y += out.

    `place` is the index of a pair's g. With `add`, the sums are added to `out` (sides that share weights).
    """
    hidden = mine.shape[1]
    k, a = np.empty(hidden, np.float32), np.empty(hidden, np.float32)
    for row in range(first, last):
        for u in range(hidden):
            k[u] = _ZERO
            a[u] = mine[row, u] * scale[u] + shift[u]
        at, end = start[row], start[row + 1]
        while at + 4 <= end:
            b0, b1, b2, b3 = (
                others[partner[at]],
                others[partner[at + 1]],
                others[partner[at + 2]],
                others[partner[at + 3]],
            )
            g0, g1, g2, g3 = g[place[at]], g[place[at + 1]], g[place[at + 2]], g[place[at + 3]]
            s0, s1, s2, s3 = slope * g0, slope * g1, slope * g2, slope * g3
            for u in range(hidden):
                c, s = a[u], scale[u]
                k01 = (g0 if c + b0[u] * s > _ZERO else s0) + (g1 if c + b1[u] * s > _ZERO else s1)
                k23 = (g2 if c + b2[u] * s > _ZERO else s2) + (g3 if c + b3[u] * s > _ZERO else s3)
                k[u] += k01 + k23
            at += 4
        while at < end:
            b0 = others[partner[at]]
            g0 = g[place[at]]
            s0 = slope * g0
            for u in range(hidden):
                k[u] += g0 if a[u] + b0[u] * scale[u] > _ZERO else s0
            at += 1
        h = mine[row]
        result = out[row]
        for u in range(hidden):
            x[u] += np.float64(h[u]) * k[u]
            y[u] += k[u]
            result[u] = result[u] + k[u] if add else k[u]


@_kernel
def partner_sums(features, start, partner, add, out, first, last):
    """out[row] = the sum of the features of a row's partners; with `add`, added to `out[row]`."""
    width = features.shape[1]
    for row in range(first, last):
        result = out[row]
        if not add:
            result[:] = _ZERO
        at, end = start[row], start[row + 1]
        while at + 4 <= end:
            z0, z1 = features[partner[at]], features[partner[at + 1]]
            z2, z3 = features[partner[at + 2]], features[partner[at + 3]]
            for u in range(width):
                result[u] += (z0[u] + z1[u]) + (z2[u] + z3[u])
            at += 4
        while at < end:
            z0 = features[partner[at]]
            for u in range(width):
                result[u] += z0[u]
            at += 1


@_kernel
def row_gradients(mine, by_k, constant, by_h, start, add, out, first, last):
    """out[row] = by_k · out[row] + count · (constant + by_h · mine[row]), count being the number of the row's pairs.

    With `add`, only the second term is added: the first was computed for both sides together.
    """
    hidden = mine.shape[1]
    for row in range(first, last):
        count = np.float32(start[row + 1] - start[row])
        a, result = mine[row], out[row]
        for u in range(hidden):
            k = result[u] if add else by_k[u] * result[u]
            result[u] = k + count * (constant[u] + by_h[u] * a[u])
