"""Batch normalisation by the statistics of all processes, on any device (torch's SyncBatchNorm needs a GPU).

Messages: forward, one float64 vector (count, Σx, Σx²) per layer; backward, one (Σdy, Σdy·(x − µ)). The fused Conv-4
exchanges the same vectors in the same order, so that a process on the plain path meets one on the fused path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

Reduce = Callable[[Tensor], Tensor]
"""The sum of a small vector over all processes, such as `World.sum`."""


class GlobalBatchNorm(_BatchNorm):
    """`nn.BatchNorm1d`/`2d` over the mini-batch of all processes; in eval mode it is exactly that."""

    reduce: Reduce

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least two dimensions, not {input.dim()}")

    def forward(self, input: Tensor) -> Tensor:
        """Normalise by global statistics while training."""
        if not self.training:
            return super().forward(input)
        self._check_input_dim(input)
        normalise: Any = _Normalise.apply
        y, mean, variance, count = normalise(input, self.weight, self.bias, self.eps, self.reduce)
        update_running(self, mean, variance, count)
        return y  # type: ignore[no-any-return]


class _Normalise(torch.autograd.Function):
    """y = (x − µ)/√(σ² + ε)·γ + β with µ and σ² over all processes, and the statistics for the running averages."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, reduce: Reduce
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        dims = [d for d in range(x.dim()) if d != 1]
        local = x.numel() // x.shape[1]
        wide = torch.promote_types(x.dtype, torch.float32)
        if local:
            variance, mean = (t.double() for t in torch.var_mean(x.to(wide), dims, correction=0))
        else:  # no image of a short mini-batch fell to this process
            variance = mean = x.new_zeros(x.shape[1], dtype=torch.float64)
        count, mean, variance = merge(local, mean, variance, reduce)
        inverse = torch.rsqrt(variance + eps)
        scale = inverse if weight is None else inverse * weight.double()
        shift = -mean * scale if bias is None else bias.double() - mean * scale
        y = x.to(wide) * _along(scale.to(wide), x) + _along(shift.to(wide), x)
        ctx.save_for_backward(x, weight, mean, inverse)
        ctx.count, ctx.reduce, ctx.dims = count, reduce, dims
        ctx.mark_non_differentiable(mean, variance, count)
        return y.to(x.dtype), mean, variance, count

    @staticmethod
    def backward(ctx: Any, dy: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, weight, mean, inverse = ctx.saved_tensors
        wide = torch.promote_types(x.dtype, torch.float32)
        centred, dy = x.to(wide) - _along(mean.to(wide), x), dy.to(wide)
        local = torch.stack([dy.sum(ctx.dims), (dy * centred).sum(ctx.dims)]).double()
        by_shift, by_scale = ctx.reduce(local)
        gamma = torch.ones_like(inverse) if weight is None else weight.double()
        scale = gamma * inverse
        slope, constant = -scale * inverse**2 * by_scale / ctx.count, -scale * by_shift / ctx.count
        dx = dy * _along(scale.to(wide), x) + centred * _along(slope.to(wide), x) + _along(constant.to(wide), x)
        if weight is None:
            return dx.to(x.dtype), None, None, None, None
        return dx.to(x.dtype), (local[1] * inverse).to(weight.dtype), local[0].to(weight.dtype), None, None


def merge(count: int, mean: Tensor, variance: Tensor, reduce: Reduce) -> tuple[Tensor, Tensor, Tensor]:
    """Count, mean and biased variance over all processes, in float64: one sum of (count, Σx, Σx²)."""
    message = torch.cat([mean.new_tensor([float(count)]), count * mean, count * (variance + mean * mean)])
    total = reduce(message)
    number, sums, squares = total[0], *total[1:].chunk(2)
    mean = sums / number
    return number, mean, (squares / number - mean * mean).clamp_min(0)


def _along(vector: Tensor, x: Tensor) -> Tensor:
    """A vector over channels, shaped to meet x."""
    return vector.view(1, -1, *(1,) * (x.dim() - 2))


@torch.no_grad()
def update_running(norm: _BatchNorm, mean: Tensor, variance: Tensor, count: float | Tensor) -> None:
    """Move running statistics as `nn.BatchNorm1d` does in training: momentum, and the unbiased variance."""
    if norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
        return
    norm.num_batches_tracked.add_(1)
    factor = norm.momentum if norm.momentum is not None else 1.0 / float(norm.num_batches_tracked)
    unbiased = variance * (count / (count - 1))
    norm.running_mean.lerp_(mean.to(norm.running_mean.dtype), factor)
    norm.running_var.lerp_(unbiased.to(norm.running_var.dtype), factor)


def convert(module: nn.Module, reduce: Reduce) -> None:
    """Replace the batch-norm layers below a module by global ones with the same parameters, buffers and hooks."""
    for name, child in module.named_children():
        if isinstance(child, _BatchNorm) and not isinstance(child, GlobalBatchNorm):
            norm = GlobalBatchNorm.__new__(GlobalBatchNorm)
            norm.__dict__.update(child.__dict__)
            norm.reduce = reduce
            setattr(module, name, norm)
        else:
            convert(child, reduce)
