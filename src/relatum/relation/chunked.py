"""The fused head's walk over pairs in plain torch: chunk by chunk, recomputing in backward; any device, any dtype.

For cat, sum and mean the first layer is computed once per row and a pair costs an addition. For max there is no such
split, and each chunk goes through the layer again. Memory is O(chunk · H), whatever the number of pairs.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import functional as F

from relatum.relation.pairs import Pairs
from relatum.relation.reference import RelationHead
from relatum.relation.split import SPLITTABLE, join_gradient, mean_input, side_constants, split_weight

CHUNK = 4096  # pairs at a time: 4 MiB of float32 at 256 hidden units, in cache on a CPU and enough to fill a GPU


class ChunkedBackend:
    """See `fused.Backend`."""

    def __init__(self, features: Tensor, weight: Tensor, pairs: Pairs, head: RelationHead) -> None:
        self.features, self.weight, self.pairs = features, weight, pairs
        self.aggregation, self.slope = head.aggregation, head.slope
        self.left, self.right, self.targets = pairs.tensors(features.device)
        self.wide = torch.float32 if features.device.type == "mps" else torch.float64
        self.split = self.aggregation in SPLITTABLE

    def mean_input(self) -> Tensor:
        """The mean over pairs of the aggregated input u."""
        if self.split:
            return mean_input(self.features, self.pairs, self.aggregation, self.wide)
        total = torch.zeros(self.features.shape[1], dtype=self.wide, device=self.features.device)
        for chunk in self._chunks():
            total += self._maximum(chunk).sum(dim=0, dtype=self.wide)
        return total / len(self.pairs)

    def start(self, offset: Tensor) -> None:
        """Fix h = W u - offset for all that follows."""
        constant = -offset.to(self.features.dtype)
        if self.split:
            sides = split_weight(self.weight, self.aggregation)
            self.rows = side_constants(constant, len(sides)) + self.features @ sides.transpose(1, 2)
        else:
            self.constant = constant

    def squares(self) -> Tensor:
        """(H,) Σ h²."""
        total = self._vector()
        for chunk in self._chunks():
            total += self._hidden(chunk).square_().sum(dim=0, dtype=self.wide)
        return total

    def logits(self, scale: Tensor, shift: Tensor, w: Tensor) -> Tensor:
        """(P,) w · leaky(scale · h + shift)."""
        dtype = self.features.dtype
        self.scale, self.shift, w = scale.to(dtype), shift.to(dtype), w.to(dtype)
        logits = torch.empty(len(self.pairs), dtype=dtype, device=self.features.device)
        for chunk in self._chunks():
            y = torch.addcmul(self.shift, self._hidden(chunk), self.scale)
            torch.mv(F.leaky_relu_(y, self.slope), w, out=logits[chunk])
        return logits

    def sums(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """(H,) X = Σ k·h and Y = Σ k, where k = g · leaky'(y)."""
        self.g = g
        x, y = self._vector(), self._vector()
        for chunk in self._chunks():
            hidden = self._hidden(chunk)
            k = self._slopes(chunk, hidden)
            x += (k * hidden).sum(dim=0, dtype=self.wide)
            y += k.sum(dim=0, dtype=self.wide)
        return x, y

    def gradients(self, by_k: Tensor, constant: Tensor, by_h: Tensor) -> tuple[Tensor, Tensor]:
        """For ∂h = by_k · k + constant + by_h · h: the gradients of the features and of W."""
        dtype = self.features.dtype
        by_k, constant, by_h = by_k.to(dtype), constant.to(dtype), by_h.to(dtype)
        if self.split:
            d_rows = torch.zeros_like(self.rows)
        d_features, d_weight = torch.zeros_like(self.features), torch.zeros_like(self.weight)
        for chunk in self._chunks():
            hidden = self._hidden(chunk)
            d_hidden = torch.addcmul(constant, hidden, by_h).addcmul_(self._slopes(chunk, hidden), by_k)
            left, right = self.left[chunk], self.right[chunk]
            if self.split:
                _add_rows(d_rows[0], left, d_hidden)
                _add_rows(d_rows[-1], right, d_hidden)
                continue
            a, b = self.features[left], self.features[right]
            d_weight.addmm_(d_hidden.t(), torch.maximum(a, b))
            d_input = d_hidden @ self.weight
            share = (a > b).to(dtype).add_((a == b).to(dtype), alpha=0.5)  # torch.maximum halves a tie
            to_left = d_input * share
            _add_rows(d_features, left, to_left)
            _add_rows(d_features, right, d_input.sub_(to_left))
        if self.split:
            sides = split_weight(self.weight, self.aggregation)
            d_features = torch.bmm(d_rows, sides).sum(dim=0)
            d_weight = join_gradient(d_rows.transpose(1, 2) @ self.features, self.aggregation)
        return d_features, d_weight

    def _chunks(self) -> Iterator[slice]:
        return (slice(at, at + CHUNK) for at in range(0, len(self.pairs), CHUNK))

    def _vector(self) -> Tensor:
        return torch.zeros(len(self.weight), dtype=self.wide, device=self.features.device)

    def _maximum(self, chunk: slice) -> Tensor:
        return torch.maximum(self.features[self.left[chunk]], self.features[self.right[chunk]])

    def _hidden(self, chunk: slice) -> Tensor:
        """(chunk, H) h = W u - offset."""
        if self.split:
            return self.rows[0].index_select(0, self.left[chunk]).add_(self.rows[-1].index_select(0, self.right[chunk]))
        return torch.addmm(self.constant, self._maximum(chunk), self.weight.t())

    def _slopes(self, chunk: slice, hidden: Tensor) -> Tensor:
        """(chunk, H) k = g · leaky'(y)."""
        g = self.g[chunk, None]
        return torch.where(torch.addcmul(self.shift, hidden, self.scale) > 0, g, g * self.slope)


def _add_rows(target: Tensor, rows: Tensor, values: Tensor) -> None:
    """Add values to rows, repeated ones too. On CUDA `index_add_` is atomic and unordered; `index_put_` sorts first."""
    if target.device.type == "cuda":
        target.index_put_((rows,), values, accumulate=True)
    else:
        target.index_add_(0, rows, values)
