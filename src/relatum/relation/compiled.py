"""The fused head's passes over pairs by numba kernels: float32 on the CPU, for cat, sum and mean.

`relatum.relation.fused` has the mathematics, `relatum.relation.reference` is the readable specification, and
`relatum.kernels.relation` has the kernels. The first layer is a matrix product over rows (torch). The rest is computed
per pair in three passes: squares for the statistics, logits with their loss, and the sums that the gradients consist
of. Nothing of size P · H is stored. torch is used for matrix products only: on busy cores each barrier of OpenMP may
cost a time slice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relatum.kernels import relation as kernels
from relatum.kernels.threads import run_chunks
from relatum.relation.pairs import Pairs
from relatum.relation.reference import RelationHead
from relatum.relation.split import join_gradient, join_means, side_constants, split_weight

PARTS = 16  # parts of a pass, whatever the number of threads, so that the bits do not depend on it


class NumbaBackend:
    """See `fused.Backend`."""

    def __init__(self, features: Tensor, weight: Tensor, pairs: Pairs, head: RelationHead) -> None:
        self.pairs, self.by_row = pairs, pairs.by_row
        self.sides = split_weight(weight, head.aggregation)
        self.aggregation, self.slope = head.aggregation, np.float32(head.slope)
        self.features, self.centre = torch.empty(features.shape), torch.empty(features.shape[1])
        self.means = torch.zeros(2, features.shape[1], dtype=torch.float64)
        starts = self.by_row.left_start, self.by_row.right_start
        arrays = (t.numpy() for t in (self.centre, self.features, self.means))
        kernels.centred(features.contiguous().numpy(), *starts, *arrays)

    def mean_input(self) -> Tensor:
        """The mean over pairs of the aggregated input u."""
        return join_means(self.means, self.aggregation)

    def start(self, offset: Tensor) -> None:
        """Fix h = W u - offset for all that follows."""
        self.constants = side_constants(-offset.float(), len(self.sides))
        self.rows = torch.baddbmm(
            self.constants, self.features.expand(len(self.sides), -1, -1), self.sides.transpose(1, 2)
        )

    def squares(self) -> Tensor:
        """(H,) Σ h²."""
        total = np.zeros((PARTS, self.rows.shape[2]))
        left, right = _arrays(self.rows)
        by_row = self.by_row

        def part(number: int, first: int, last: int) -> None:
            kernels.squares(left, right, by_row.left_start, by_row.left_partner, total[number], first, last)

        self._run(part, by_row.left_start)
        return torch.from_numpy(total.sum(axis=0))

    def loss(
        self, scale: Tensor, shift: Tensor, w: Tensor, bias: Tensor, gamma: float, focal: bool
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """Mean loss of logits = w · leaky(scale · h + shift) + bias, and accuracies; ∂loss/∂logit is kept as `g`."""
        self.scale, self.shift = scale.float().numpy(), shift.float().numpy()
        weights, constant, exponent = w.float().numpy(), np.float32(bias.item()), np.float32(gamma)
        logits, g = np.empty(len(self.pairs), np.float32), np.empty(len(self.pairs), np.float32)
        (left, right), by_row = _arrays(self.rows), self.by_row
        start, partner = by_row.left_start, by_row.left_partner
        totals = np.empty((PARTS, 3))

        def part(number: int, first: int, last: int) -> None:
            vectors = self.scale, self.shift, weights, constant, self.slope
            kernels.logits(left, right, *vectors, start, partner, logits, first, last)
            rows = slice(start[first], start[last])
            totals[number] = kernels.losses(logits[rows], by_row.targets[rows], exponent, focal, g[rows])
            g[rows] /= len(self.pairs)

        self._run(part, start)
        self.g = torch.from_numpy(g)
        loss, *correct = torch.from_numpy(totals.sum(axis=0)).float()
        count, positives = len(self.pairs), self.pairs.num_positives
        shares = sum(correct) / count, correct[0] / positives, correct[1] / (count - positives)
        return loss / count, shares

    def sums(self) -> tuple[Tensor, Tensor]:
        """(H,) X = Σ k·h and Y = Σ k, where k = g · leaky'(y); Σ k of each row is kept."""
        self.k_rows = torch.empty_like(self.rows)
        hidden = self.rows.shape[2]
        x, y = np.zeros((PARTS, hidden)), np.zeros((2, PARTS, hidden))
        (left, right), (k_left, k_right) = _arrays(self.rows), _arrays(self.k_rows)
        by_row, shared = self.by_row, len(self.sides) == 1
        vectors = self.scale, self.shift, self.g.numpy(), self.slope
        of_left = by_row.left_start, by_row.left_partner, np.arange(len(self.pairs), dtype=np.int32)
        of_right = by_row.right_start, by_row.right_partner, by_row.right_place

        def part(number: int, first: int, last: int) -> None:
            kernels.row_sums(left, right, *vectors, *of_left, False, k_left, x[number], y[0, number], first, last)
            kernels.row_sums(right, left, *vectors, *of_right, shared, k_right, x[number], y[1, number], first, last)

        self._run(part, by_row.left_start + by_row.right_start)
        return torch.from_numpy(x.sum(axis=0)), torch.from_numpy(y[0].sum(axis=0))

    def gradients(self, by_k: Tensor, constant: Tensor, by_h: Tensor) -> tuple[Tensor, Tensor]:
        """For ∂h = by_k · k + constant + by_h · h: the gradients of the features and of W.

        A row's ∂h, summed over its pairs, needs the sum of its partners' hidden values. That sum is linear in their
        features, so features are summed instead (d numbers, not H), and the rest is done by small matrices.
        """
        sides, by_row, shared = self.sides, self.by_row, len(self.sides) == 1
        (left, right), (d_left, d_right) = _arrays(self.rows), _arrays(self.k_rows)
        partners = torch.empty(len(sides), *self.features.shape)
        (p_left, p_right), features = _arrays(partners), self.features.numpy()
        by_k, constant, by_h = by_k.float(), constant.float(), by_h.float()

        def factors(partner_side: int) -> list[NDArray[np.float32]]:
            # Beside W · features, a partner's row holds the constant of its side (see `start`).
            return [by_k.numpy(), (constant + by_h * self.constants[partner_side, 0]).numpy(), by_h.numpy()]

        of_left, of_right = factors(-1), factors(0)

        def part(number: int, first: int, last: int) -> None:
            start, partner = by_row.left_start, by_row.left_partner
            kernels.partner_sums(features, start, partner, False, p_left, first, last)
            kernels.row_gradients(left, *of_left, start, False, d_left, first, last)
            start, partner = by_row.right_start, by_row.right_partner
            kernels.partner_sums(features, start, partner, shared, p_right, first, last)
            kernels.row_gradients(right, *of_right, start, shared, d_right, first, last)

        self._run(part, by_row.left_start + by_row.right_start)
        scaled = by_h[:, None] * sides.flip(0)  # (S, H, d): by_h · the partner's weight
        d_sides = self.k_rows.transpose(1, 2) @ self.features
        d_sides += scaled @ (partners.transpose(1, 2) @ self.features)
        d_features = partners[0] @ (scaled[0].t() @ sides[0])
        d_features.addmm_(self.k_rows[0], sides[0])
        if not shared:
            d_features.addmm_(partners[1], scaled[1].t() @ sides[1]).addmm_(self.k_rows[1], sides[1])
        return d_features, join_gradient(d_sides, self.aggregation)

    def _run(self, part: Callable[[int, int, int], Any], start: NDArray[np.int32]) -> None:
        """Run `part` on ranges of rows with about equal work; `start` is the amount of work before each row."""
        cuts = np.searchsorted(start, np.linspace(0, start[-1], PARTS + 1)[1:-1])
        bounds = [0, *cuts.tolist(), len(start) - 1]
        parts = [(n, bounds[n], bounds[n + 1]) for n in range(PARTS)]
        run_chunks(part, parts, torch.get_num_threads())


def _arrays(rows: Tensor) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The rows of the left and of the right side, which are the same array if the sides share weights."""
    return rows[0].numpy(), rows[-1].numpy()
