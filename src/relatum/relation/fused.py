"""The relation head, its loss and its gradient over a list of pairs, without storing a pair.

The mathematics is here; a backend does the passes over the pairs (`compiled` by numba, `chunked` by torch).

For pair p the head computes h = W u + b with u the aggregated pair, y = s·(h - µ) + β with s = γ/√(σ² + ε) from the
statistics of h over all pairs, and the logit w·leaky(y) + c. Rows are centred first: W(u - ū) is all that the
statistics and y need, so features whose mean is a thousand times their spread lose nothing. Vectors over hidden units
are float64.

Backward, with g = ∂loss/∂logit and k = g·leaky'(y) for each pair and hidden unit, two sums carry everything:
Y = Σ k and X = Σ k·(h - µ). Then ∂w = s·X + β·Y, ∂β = w·Y, ∂γ = w·X/√(σ² + ε), and for each pair
∂h = s·w·k - s·∂β/P - s/√(σ² + ε)·(h - µ)·∂γ/P: three coefficients per hidden unit, known before the last walk.

Shape letters: N rows of features, d feature size, H hidden units, P pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from relatum.distributed import Reduce, merge, update_running
from relatum.relation.pairs import Pairs
from relatum.relation.reference import RelationHead, aggregate


class Backend(Protocol):
    """Passes over the pairs. Built from features (N, d), the weight of linear1, the list of pairs and the head.

    Attributes:
        centre: (d,) the constant row that was taken from the features.
        g: (P,) ∂loss/∂logit, in the backend's own order.
    """

    centre: Tensor
    g: Tensor

    def mean_input(self) -> Tensor:
        """The mean over pairs of the aggregated, centred input u, float64."""

    def start(self, offset: Tensor) -> None:
        """Fix h = W u - offset for all that follows."""

    def squares(self) -> Tensor:
        """(H,) Σ h², float64."""

    def loss(
        self, scale: Tensor, shift: Tensor, w: Tensor, bias: Tensor, gamma: float, focal: bool
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """Mean loss of the logits w · leaky(y) + bias with y = scale · h + shift, and accuracies; sets `g`."""

    def sums(self) -> tuple[Tensor, Tensor]:
        """(H,) X = Σ k·h and Y = Σ k, float64, where k = g · leaky'(y)."""

    def gradients(self, by_k: Tensor, constant: Tensor, by_h: Tensor) -> tuple[Tensor, Tensor]:
        """For ∂h = by_k · k + constant + by_h · h: the gradients of the features and of W, the latter for centred u."""


def fused_loss(
    head: RelationHead,
    features: Tensor,
    pairs: Pairs,
    gamma: float,
    focal: bool,
    backend: Callable[..., Backend],
    reduce: Reduce | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mean loss and the three accuracies of a relation head; gradients flow to the features and the head."""
    if len(features) != pairs.rows:
        raise ValueError(f"the pair list refers to {pairs.rows} rows, but there are {len(features)} rows of features")
    bn, linear1, linear2 = head.bn1, head.linear1, head.linear2
    parameters = (linear1.weight, linear1.bias, bn.weight, bn.bias, linear2.weight, linear2.bias)
    with torch.autocast(features.device.type, enabled=False):
        return _FusedHead.apply(features, *parameters, head, pairs, gamma, focal, backend, reduce)  # type: ignore


class _FusedHead(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor,
        bn_weight: Tensor,
        bn_bias: Tensor,
        weight2: Tensor,
        bias2: Tensor,
        head: RelationHead,
        pairs: Pairs,
        gamma: float,
        focal: bool,
        make_backend: Callable[..., Backend],
        reduce: Reduce | None,
    ) -> tuple[Tensor, ...]:
        work = torch.promote_types(weight.dtype, torch.float32)
        wide = torch.float32 if features.device.type == "mps" else torch.float64  # mps has no float64
        backend = make_backend(features.to(work), weight.to(work), pairs, head)
        weight_wide, w = weight.to(wide), weight2[0].to(wide)
        # What centring took from h comes back here: the aggregate of (centre, centre), through W.
        input_centre = aggregate(*(backend.centre.to(wide)[None],) * 2, head.aggregation)[0]
        fixed = torch.mv(weight_wide, input_centre) + bias.to(wide)

        bn = head.bn1
        batch_statistics = bn.training or bn.running_mean is None
        count: float | Tensor = float(len(pairs))
        local_excess = None
        if batch_statistics:
            offset = torch.mv(weight_wide, backend.mean_input())
            backend.start(offset)
            mean, variance = offset + fixed, backend.squares() / len(pairs)
            if reduce is not None:
                local_mean = mean
                count, mean, variance = merge(len(pairs), mean, variance, reduce)
                local_excess = local_mean - mean
                backend.start(offset - local_excess)
            elif len(pairs) < 2:
                raise ValueError("batch-norm over a single pair has no variance: give at least two pairs")
            if bn.training:
                update_running(bn, mean, variance, count)
        else:
            assert bn.running_mean is not None
            assert bn.running_var is not None
            variance = bn.running_var.to(wide)
            backend.start(bn.running_mean.to(wide) - fixed)
        rstd = torch.rsqrt(variance + bn.eps)
        scale, shift = rstd * bn_weight.to(wide), bn_bias.to(wide)

        loss, metrics = backend.loss(scale, shift, w, bias2, gamma, focal)
        if any(ctx.needs_input_grad):
            ctx.save_for_backward(weight, bn_bias, weight2)  # checks that they are not changed before backward
            ctx.state = (backend, scale, shift, rstd, w, input_centre, batch_statistics, count, local_excess, reduce)
            ctx.shapes = (features.dtype, weight.dtype, len(pairs))
        ctx.mark_non_differentiable(*metrics)
        return loss, *metrics

    @staticmethod
    @once_differentiable  # type: ignore[misc]
    def backward(ctx: Any, grad_loss: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        _ = ctx.saved_tensors
        backend, scale, shift, rstd, w, input_centre, batch_statistics, count, local_excess, reduce = ctx.state
        feature_dtype, dtype, num_pairs = ctx.shapes
        x, y = backend.sums()
        x, y = x * grad_loss, y * grad_loss
        d_w, d_shift, d_bn = scale * x + shift * y, w * y, w * rstd * x
        by_k = scale * w * grad_loss
        constant, by_h = torch.zeros_like(by_k), torch.zeros_like(by_k)
        if batch_statistics:
            sums = torch.cat([d_shift, d_bn])
            all_shift, all_bn = (reduce(sums) if reduce is not None else sums).chunk(2)
            constant, by_h = -scale * all_shift / count, -scale * rstd * all_bn / count
        d_features, d_weight = backend.gradients(by_k, constant, by_h)
        # Σ ∂h over this list: 0 with its own statistics, but not in eval mode or with statistics shared across ranks.
        d_bias = scale * w * y + constant * num_pairs
        if local_excess is not None:
            d_bias += by_h * local_excess * num_pairs
        d_weight = d_weight.addr_(d_bias.to(d_weight.dtype), input_centre.to(d_weight.dtype))
        d_parameters = (d_weight, d_bias, d_bn, d_shift, d_w[None], (backend.g.sum() * grad_loss)[None])
        return d_features.to(feature_dtype), *(t.to(dtype) for t in d_parameters), *(None,) * 6
