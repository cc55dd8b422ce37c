"""The fused head's walk over pairs by numba on the CPU, in float32, for cat, sum and mean.

The first layer is a matrix product over rows (torch); what is left per pair is done by `kernels` in three passes: squares
for the statistics, logits, and the sums that the gradients are made of. A last pass adds the batch-norm terms, which need
for each row the sum over its partners. Nothing of size P · H is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relatum.parallel import run_chunks
from relatum.relation import kernels
from relatum.relation.pairs import Pairs
from relatum.relation.reference import RelationHead
from relatum.relation.split import join_gradient, mean_input, side_constants, split_weight

PARTS = 16  # pieces of a pass, fixed so that bits do not depend on threads; small enough to even out two uneven cores


class NumbaBackend:
    """See `fused.Backend`."""

    def __init__(self, features: Tensor, weight: Tensor, pairs: Pairs, head: RelationHead) -> None:
        self.features, self.pairs, self.by_row = features, pairs, pairs.by_row
        self.sides = split_weight(weight, head.aggregation)
        self.aggregation, self.slope = head.aggregation, np.float32(head.slope)
        self.targets = torch.from_numpy(self.by_row.targets)

    def mean_input(self) -> Tensor:
        """The mean over pairs of the aggregated input u."""
        return mean_input(self.features, self.pairs, self.aggregation, torch.float64)

    def start(self, offset: Tensor) -> None:
        """Fix h = W u - offset for all that follows."""
        constants = side_constants(-offset.float(), len(self.sides))
        self.rows = torch.baddbmm(constants, self.features.expand(len(self.sides), -1, -1), self.sides.transpose(1, 2))

    def squares(self) -> Tensor:
        """(H,) Σ h²."""
        total = np.zeros((PARTS, self.rows.shape[2]))
        left, right = _arrays(self.rows)
        by_row = self.by_row

        def part(number: int, first: int, last: int) -> None:
            kernels.squares(left, right, by_row.left_start, by_row.left_partner, total[number], first, last)

        self._run(part, by_row.left_start)
        return torch.from_numpy(total.sum(axis=0))

    def logits(self, scale: Tensor, shift: Tensor, w: Tensor) -> Tensor:
        """(P,) w · leaky(scale · h + shift), in the left order."""
        self.scaled = torch.addcmul(side_constants(shift.float(), len(self.sides)), self.rows, scale.float())
        left, right = _arrays(self.scaled)
        out = np.empty(len(self.pairs), np.float32)
        weights, by_row = w.float().numpy(), self.by_row

        def part(number: int, first: int, last: int) -> None:
            start, partner = by_row.left_start, by_row.left_partner
            kernels.logits(left, right, weights, self.slope, start, partner, out, first, last)

        self._run(part, by_row.left_start)
        return torch.from_numpy(out)

    def sums(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """(H,) X = Σ k·h and Y = Σ k, where k = g · leaky'(y); Σ k of each row is kept."""
        self.k_rows = torch.empty_like(self.rows)
        hidden = self.rows.shape[2]
        x, y = np.zeros((PARTS, hidden)), np.zeros((2, PARTS, hidden))
        (left, right), (h_left, h_right), (k_left, k_right) = (_arrays(t) for t in (self.scaled, self.rows, self.k_rows))
        by_row, slope, shared = self.by_row, self.slope, len(self.sides) == 1
        slopes, in_order = g.numpy(), np.arange(len(self.pairs), dtype=np.int32)

        def part(number: int, first: int, last: int) -> None:
            mine, other = (by_row.left_start, by_row.left_partner, in_order), y[0, number]
            kernels.row_sums(left, right, h_left, slopes, slope, *mine, False, k_left, x[number], other, first, last)
            mine, other = (by_row.right_start, by_row.right_partner, by_row.right_place), y[1, number]
            kernels.row_sums(right, left, h_right, slopes, slope, *mine, shared, k_right, x[number], other, first, last)

        self._run(part, by_row.left_start + by_row.right_start)
        return torch.from_numpy(x.sum(axis=0)), torch.from_numpy(y[0].sum(axis=0))

    def gradients(self, by_k: Tensor, constant: Tensor, by_h: Tensor) -> tuple[Tensor, Tensor]:
        """For ∂h = by_k · k + constant + by_h · h: the gradients of the features and of W."""
        vectors = [v.float().numpy() for v in (by_k, constant, by_h)]
        (left, right), (d_left, d_right) = _arrays(self.rows), _arrays(self.k_rows)
        by_row, shared = self.by_row, len(self.sides) == 1

        def part(number: int, first: int, last: int) -> None:
            mine = (by_row.left_start, by_row.left_partner)
            kernels.row_gradients(left, right, *vectors, *mine, False, d_left, first, last)
            mine = (by_row.right_start, by_row.right_partner)
            kernels.row_gradients(right, left, *vectors, *mine, shared, d_right, first, last)

        self._run(part, by_row.left_start + by_row.right_start)
        d_rows = self.k_rows
        d_features = d_rows[0] @ self.sides[0]
        if not shared:
            d_features.addmm_(d_rows[1], self.sides[1])
        return d_features, join_gradient(d_rows.transpose(1, 2) @ self.features, self.aggregation)

    def _run(self, part: Callable[[int, int, int], Any], start: NDArray[np.int32]) -> None:
        """Cut the rows into parts of about equal work, `start` counting it up to each row."""
        cuts = np.searchsorted(start, np.linspace(0, start[-1], PARTS + 1)[1:-1])
        bounds = [0, *cuts.tolist(), len(start) - 1]
        parts = [(n, bounds[n], bounds[n + 1]) for n in range(PARTS)]
        run_chunks(part, parts, torch.get_num_threads())


def _arrays(rows: Tensor) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The rows of the left and of the right side; one and the same where the sides share weights."""
    return rows[0].numpy(), rows[-1].numpy()
