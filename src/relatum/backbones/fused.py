"""Conv-4's training step on the CPU, with convolution, batch-norm, ReLU and pooling fused into few passes over memory.

The modules of `relatum.backbones.conv4` are the readable specification; this module passes their parameters and buffers
to the kernels of `relatum.kernels.conv4`. Only the outputs y of the convolutions are stored. A layer's forward pass
pools the layer below from its y, convolves within the cache, and sums the batch statistics while the result is in
registers. Its backward pass computes dy from y and the gradient of the pooled map, and uses it at once for the weights,
for the gradient of the layer below and for the batch-norm sums of that layer. docs/log.md has measurements.

The images are divided into at most 32 parts, whatever the number of threads, and the sums of the parts are added in
order, so the bits do not depend on the number of threads.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from relatum.backbones.conv4 import Conv4
from relatum.distributed import Reduce, merge, update_running
from relatum.kernels.conv4 import TILES, backward_kernel, features, features_backward, forward_kernel
from relatum.kernels.threads import run_chunks

Array = npt.NDArray[Any]
_PARTS = 32
_EMPTY = np.zeros(0, np.float32)


class _Layer(NamedTuple):
    """Values of a layer for its backward pass: y, its batch-norm as y · scale + bias, mean, and 1/σ in float64."""

    y: Array
    scale: Array = _EMPTY
    bias: Array = _EMPTY
    mean: Array = _EMPTY
    inverse: Array = _EMPTY


def attach(network: nn.Module) -> bool:
    """Train a Conv4 through the fused kernels; inputs that they do not support still take the plain modules.

    Returns:
        Whether `network` is a Conv4; other modules are not changed.
    """
    if type(network) is not Conv4:
        return False
    network.forward = functools.partial(_forward_or_plain, network)  # type: ignore[method-assign]
    return True


def _forward_or_plain(network: Conv4, x: Tensor) -> Tensor:
    return forward(network, x) if usable(network, x) else Conv4.forward(network, x)


def usable(network: Conv4, x: Tensor) -> bool:
    """Whether `forward` supports `network(x)`: training in float32 on the CPU, with sides in multiples of 32."""
    norms = [block.bn for block in _blocks(network)]
    return (
        all(norm.training and norm.track_running_stats and norm.weight.dtype == torch.float32 for norm in norms)
        and x.dtype == torch.float32
        and x.device.type == norms[0].weight.device.type == "cpu"
        and not (x.requires_grad or torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling())
        and x.ndim == 4
        and x.shape[0] > 0
        and x.shape[2] == x.shape[3]
        and x.shape[2] % 32 == 0
    )


def forward(network: Conv4, x: Tensor) -> Tensor:
    """`network(x)` in training by the fused kernels: the same parameters, gradients and running statistics.

    Args:
        network: a `Conv4` for which `usable` holds.
        x: images (N, 3, S, S); channels-last avoids a copy.
    """
    blocks = _blocks(network)
    parameters = [p for block in blocks for p in (block.conv.weight, block.bn.weight, block.bn.bias)]
    apply: Any = _Conv4.apply
    reduce = getattr(blocks[0].bn, "reduce", None)  # of a `GlobalBatchNorm`: statistics of all processes
    z, moments, count = apply(x, tuple(block.bn.eps for block in blocks), reduce, *parameters)
    for layer, (block, moment) in enumerate(zip(blocks, moments.split([t.cout for t in TILES], 1), strict=True)):
        update_running(block.bn, moment[0], moment[1], count * (x.shape[2] >> layer) ** 2)
    return z


def _blocks(network: Conv4) -> list[Any]:
    return [network.layer1, network.layer2, network.layer3, network.layer4]


class _Conv4(torch.autograd.Function):
    """Images and twelve parameters to representations, and the moments (2, 8 + 16 + 32 + 64) of the batch."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, eps: tuple[float, ...], reduce: Reduce | None, *parameters: Tensor
    ) -> tuple[Tensor, Tensor, float]:
        count, side, parts = x.shape[0], x.shape[2], min(_PARTS, x.shape[0])
        images = np.diff(np.arange(parts + 1) * count // parts)[:, None]
        total = float(count)  # images of all processes
        layers, moments = [_Layer(x.detach().permute(0, 2, 3, 1).contiguous().view(-1).numpy())], []
        for k, tile in enumerate(TILES):
            weight, gamma, beta = (p.detach().numpy() for p in parameters[3 * k : 3 * k + 3])
            below, y = layers[-1], np.empty(count * side * side * tile.cout, np.float32)
            stats = np.zeros((parts, 3, tile.cout))
            weight = _flat(weight.transpose(2, 3, 1, 0))
            _run(forward_kernel(tile), count, *below[:3], weight, y, stats.reshape(-1), side, side)
            mean, variance = _combine(stats, images * side * side)
            if reduce is not None:
                pixels, mean, variance = _across_processes(count * side * side, mean, variance, reduce)
                total = pixels / (side * side)
            inverse = 1 / np.sqrt(variance + eps[k])
            scale = gamma * inverse
            layers.append(_Layer(y, _flat(scale), _flat(beta - mean * scale), _flat(mean), inverse))
            moments.append(np.stack([mean, variance]))
            side //= 2
        z = np.empty((count, 64), np.float32)
        _run(features, count, *layers[-1][:3], z.reshape(-1), side * 2, side * 2)
        ctx.layers, ctx.shape, ctx.total, ctx.reduce = layers, x.shape, total, reduce
        ctx.save_for_backward(*parameters)
        ctx.mark_non_differentiable(both := torch.from_numpy(np.concatenate(moments, 1)))
        return torch.from_numpy(z), both, total

    @staticmethod
    def backward(ctx: Any, dz: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        layers, parameters = ctx.layers, ctx.saved_tensors
        count, parts = ctx.shape[0], min(_PARTS, ctx.shape[0])
        side = window = ctx.shape[2] // 8
        dp, stats = dz.contiguous().numpy().reshape(-1), np.zeros((parts, 2, 64))
        _run(features_backward, count, *layers[4][:4], dp, stats.reshape(-1), side, side)
        gradients: list[Tensor] = []
        for k in (3, 2, 1, 0):
            tile, below, layer, pixels = TILES[k], layers[k], layers[k + 1], count * side * side
            weight, gamma, _ = (p.detach().numpy() for p in parameters[3 * k : 3 * k + 3])
            sums = stats.sum(0)  # Σdy and Σdy·(y − µ)
            dbeta, dgamma = sums[0], sums[1] * layer.inverse
            all_sums = sums if ctx.reduce is None else ctx.reduce(torch.from_numpy(sums)).numpy()
            all_pixels, scale = ctx.total * side * side, gamma * layer.inverse
            slope = -gamma * layer.inverse**2 * (all_sums[1] * layer.inverse) / all_pixels
            slopes = _flat(np.stack([scale, slope, -scale * all_sums[0] / all_pixels - slope * layer.mean]))
            dweight = np.zeros((parts, 3, 3, tile.cin, tile.cout), np.float32)
            dx, stats = np.empty(pixels * tile.cin if k else 0, np.float32), np.zeros((parts, 2, tile.cin))
            flipped = _flat(weight[:, :, ::-1, ::-1].transpose(2, 3, 0, 1))
            results = dweight.reshape(-1), dx, stats.reshape(-1)
            arrays = *below[:4], *layer[:3], slopes, dp, flipped, *results
            _run(backward_kernel(tile), count, *arrays, side, side, window, window)
            sums = dweight.sum(0).transpose(3, 2, 0, 1), dgamma, dbeta
            gradients = [torch.from_numpy(np.ascontiguousarray(g, np.float32)) for g in sums] + gradients
            dp, side, window = dx, side * 2, 2
        return None, None, None, *gradients


def _run(kernel: Any, count: int, *arguments: Any) -> None:
    """Call a kernel on each of torch's threads; they take the parts of `count` images from a shared counter."""
    parts, threads = min(_PARTS, count), torch.get_num_threads()
    run_chunks(kernel, [(np.zeros(1, np.int64), parts, count, *arguments)] * min(threads, parts), threads)


def _combine(stats: Array, sizes: Array) -> tuple[Array, Array]:
    """Mean and biased variance in float64 from the parts' Σ(y − s), Σ(y − s)² and s, (parts, 3, C)."""
    total, square, shift = stats.swapaxes(0, 1)
    means = shift + total / sizes
    mean = (means * sizes).sum(0) / sizes.sum()
    return mean, (square - total**2 / sizes + sizes * (means - mean) ** 2).sum(0) / sizes.sum()


def _across_processes(count: int, mean: Array, variance: Array, reduce: Reduce) -> tuple[float, Array, Array]:
    """Count, mean and biased variance over all processes."""
    number, *moments = merge(count, torch.from_numpy(mean), torch.from_numpy(variance), reduce)
    return float(number), *(moment.numpy() for moment in moments)  # type: ignore[return-value]


def _flat(array: Array) -> Array:
    return np.ascontiguousarray(array, np.float32).reshape(-1)
