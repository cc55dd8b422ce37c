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
from relatum.relation.reference import RelationHead, accuracies
from relatum.relation.split import SPLITTABLE, join_gradient, join_means, side_constants, split_weight

CHUNK = 4096  # pairs at a time: 4 MiB of float32 at 256 hidden units, in cache on a CPU and enough to fill a GPU


class ChunkedBackend:
    """See `fused.Backend`."""

    def __init__(self, features: Tensor, weight: Tensor, pairs: Pairs, head: RelationHead) -> None:
        self.wide = torch.float32 if features.device.type == "mps" else torch.float64  # mps has no float64
        self.centre = features.mean(dim=0, dtype=self.wide).to(features.dtype)
        self.features, self.weight, self.pairs = features - self.centre, weight, pairs
        self.aggregation, self.slope = head.aggregation, head.slope
        self.left, self.right, self.targets = pairs.tensors(features.device)
        self.split = self.aggregation in SPLITTABLE

    def mean_input(self) -> Tensor:
        """The mean over pairs of the aggregated input u."""
        if self.split:
            counts = self.pairs.counts(self.features.device)
            return join_means(counts.to(self.wide) @ self.features.to(self.wide) / len(self.pairs), self.aggregation)
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

    def loss(
        self, scale: Tensor, shift: Tensor, w: Tensor, bias: Tensor, gamma: float, focal: bool
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """Mean loss of logits = w · leaky(scale · h + shift) + bias, and accuracies; ∂loss/∂logit is kept as `g`."""
        dtype = self.features.dtype
        self.scale, self.shift, w = scale.to(dtype), shift.to(dtype), w.to(dtype)
        logits = torch.empty(len(self.pairs), dtype=dtype, device=self.features.device)
        for chunk in self._chunks():
            y = torch.addcmul(self.shift, self._hidden(chunk), self.scale)
            torch.mv(F.leaky_relu_(y, self.slope), w, out=logits[chunk])
        logits += bias.to(dtype)
        loss, self.g = focal_gradient(logits, self.targets.to(dtype), gamma, focal)
        return loss, accuracies(logits, self.targets)

    def sums(self) -> tuple[Tensor, Tensor]:
        """(H,) X = Σ k·h and Y = Σ k, where k = g · leaky'(y)."""
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
                add_rows(d_rows[0], left, d_hidden)
                add_rows(d_rows[-1], right, d_hidden)
                continue
            a, b = self.features[left], self.features[right]
            d_weight.addmm_(d_hidden.t(), torch.maximum(a, b))
            d_input = d_hidden @ self.weight
            share = (a > b).to(dtype).add_((a == b).to(dtype), alpha=0.5)  # torch.maximum halves a tie
            to_left = d_input * share
            add_rows(d_features, left, to_left)
            add_rows(d_features, right, d_input.sub_(to_left))
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


def focal_gradient(logits: Tensor, targets: Tensor, gamma: float, focal: bool) -> tuple[Tensor, Tensor]:
    """Mean of `focal_bce` over the pairs, and its gradient for each logit, in closed form."""
    sign = 2.0 * targets - 1.0
    margin = logits * sign
    log_p, log_q = F.logsigmoid(margin), F.logsigmoid(-margin)  # p_t = σ(m), 1 - p_t = σ(-m)
    if focal:
        weight = torch.exp(gamma * log_q).mul_(0.5)
        loss = -(weight * log_p).mean()
        slope = torch.exp(log_p).mul_(log_p).mul_(gamma).sub_(torch.exp(log_q)).mul_(weight)
    else:
        loss = -log_p.mean()
        slope = -torch.exp(log_q)
    return loss, slope.mul_(sign).div_(len(logits))


def add_rows(target: Tensor, rows: Tensor, values: Tensor) -> None:
    """Add values to rows, repeated ones too. On CUDA `index_add_` is atomic and unordered; `index_put_` sorts first."""
    if target.device.type == "cuda":
        target.index_put_((rows,), values, accumulate=True)
    else:
        target.index_add_(0, rows, values)
