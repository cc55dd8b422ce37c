"""Views by batched torch operations: on any device, in one graph of `torch.compile`, the same pixels as `reference`.

On a GPU the dataset can stay in device memory: pass the whole (N, H, W, 3) tensor and `sources`. Crop, antialiased
resize and flip are two small dense matrices per view, applied by two batched products. Transformations that no view of
a batch needs are skipped (the flags of `TensorParams`).

Shape letters: V views, N images, C = 3 channels, H and W source pixels, S the side of a view.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from relatum.views.params import ARRAYS, ViewParams


class TensorParams(NamedTuple):
    """`ViewParams` as tensors, with flags for the whole batch that are known without synchronising with the device."""

    box: Tensor
    flip: Tensor
    affine: Tensor
    has_affine: Tensor
    order: Tensor
    factors: Tensor
    gray: Tensor
    turns: Tensor
    cutout: Tensor
    margin: int
    any_affine: bool
    any_jitter: bool
    any_gray: bool
    any_turn: bool
    any_cutout: bool

    @classmethod
    def of(cls, params: ViewParams, device: Any) -> TensorParams:
        """The parameters on a device."""

        def send(array: Any) -> Tensor:
            return torch.from_numpy(array).to(device, non_blocking=True)

        return cls(
            **{name: send(getattr(params, name)) for name in ARRAYS},
            margin=params.margin,
            any_affine=bool(params.has_affine.any()),
            any_jitter=bool((params.order >= 0).any()),
            any_gray=bool(params.gray.any()),
            any_turn=bool(params.turns.any()),
            any_cutout=bool(params.cutout[:, 2].any()),
        )


def make_views(
    images: Tensor,
    sources: Tensor | None,
    params: TensorParams,
    side: int,
    mean: Sequence[float],
    std: Sequence[float],
) -> Tensor:
    """All views of a batch, normalised, (V, 3, S, S) float32.

    Args:
        images: (N, H, W, 3) uint8 on any device; with `sources` None, (V, H, W, 3): the image of each view.
        sources: (V,) the image of each view.
        params: from `ViewParams.to(device)`.
        side: S.
        mean: mean per channel, of colours in [0, 1].
        std: standard deviation per channel.
    """
    views = apply(images if sources is None else images[sources], params, side)
    scale = torch.tensor(std, dtype=views.dtype, device=views.device).view(1, 3, 1, 1)
    views = (views - torch.tensor(mean, dtype=views.dtype, device=views.device).view(1, 3, 1, 1)) / scale
    return cut_out(views, params.cutout) if params.any_cutout else views


def apply(images: Tensor, params: TensorParams, side: int) -> Tensor:
    """Views up to normalisation, in [0, 1], of (V, H, W, 3) images."""
    views = resize(images.permute(0, 3, 1, 2).float() / 255, params, side)
    if params.any_affine:
        views = torch.where(params.has_affine.view(-1, 1, 1, 1), warp(views, params.affine), views)
    if params.any_jitter:
        for slot in range(4):
            views = jitter(views, params.order[:, slot], params.factors)
    if params.any_gray:
        views = torch.where(params.gray.view(-1, 1, 1, 1), gray(views), views)
    if params.any_turn:
        turns = params.turns.view(-1, 1, 1, 1)
        for number in (1, 2, 3):
            views = torch.where(turns == number, torch.rot90(views, number, (2, 3)), views)
    return views


def resize(views: Tensor, params: TensorParams, side: int) -> Tensor:
    """Crop, resize and flip: one matrix for the rows, one for the columns of each view."""
    margin = params.margin
    if margin:  # boxes that reach outside see zeros there
        views = F.pad(views, (margin, margin, margin, margin))
    y0, x0, h, w = (params.box[:, k].float() for k in range(4))
    rows = taps(y0 + margin, h, views.shape[2], side, torch.zeros_like(params.flip))
    columns = taps(x0 + margin, w, views.shape[3], side, params.flip)
    return rows[:, None] @ (views @ columns[:, None].transpose(2, 3))


def taps(start: Tensor, size: Tensor, source: int, side: int, mirrored: Tensor) -> Tensor:
    """(V, S, source) weights of one axis, as `reference.taps`, for boxes that begin at `start`."""
    start, size, mirrored = start.view(-1, 1, 1), size.view(-1, 1, 1), mirrored.view(-1, 1, 1)
    output = torch.arange(side, device=start.device, dtype=torch.float32).view(1, -1, 1)
    output = torch.where(mirrored, side - 1 - output, output)
    pixel = torch.arange(source, device=start.device, dtype=torch.float32).view(1, 1, -1) - start
    scale = size / side
    weights = (1 - (pixel + 0.5 - (output + 0.5) * scale).abs() / scale.clamp(min=1)).clamp(min=0)
    weights = weights * ((pixel >= 0) & (pixel < size))
    return weights / weights.sum(2, keepdim=True)


def warp(views: Tensor, affine: Tensor) -> Tensor:
    """Bilinear reading at the affine map of each pixel, zeros outside."""
    side = views.shape[2]
    place = torch.arange(side, device=views.device, dtype=torch.float32) - (side - 1) / 2
    x, y = place.view(1, 1, -1), place.view(1, -1, 1)
    a, b, c, d, e, f = (affine[:, k].view(-1, 1, 1) for k in range(6))
    grid = torch.stack([a * x + b * y + c, d * x + e * y + f], dim=3) * (2 / side)
    return F.grid_sample(views, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def jitter(views: Tensor, step: Tensor, factors: Tensor) -> Tensor:
    """One jitter step, which may differ between views: 0 brightness, 1 contrast, 2 saturation, 3 hue, -1 none."""
    factor = factors.gather(1, step.clamp(min=0).long().view(-1, 1)).view(-1, 1, 1, 1)
    step = step.view(-1, 1, 1, 1)
    grey = gray(views)
    anchor = torch.where(step == 1, grey.mean((2, 3), keepdim=True), grey * (step == 2))
    blended = (factor * views + (1 - factor) * anchor).clamp(0, 1)
    return torch.where(step == 3, hue(views, factor), torch.where(step >= 0, blended, views))


def gray(views: Tensor) -> Tensor:
    """(V, 1, S, S) grey."""
    return 0.299 * views[:, 0:1] + 0.587 * views[:, 1:2] + 0.114 * views[:, 2:3]


def hue(views: Tensor, shift: Tensor) -> Tensor:
    """Turn the hue by `shift` of the circle."""
    red, green, blue = views[:, 0:1], views[:, 1:2], views[:, 2:3]
    value = views.amax(1, keepdim=True)
    chroma = value - views.amin(1, keepdim=True)
    safe = torch.where(chroma > 0, chroma, 1.0)
    sixth = torch.where(value == green, (blue - red) / safe + 2, (red - green) / safe + 4)
    sixth = torch.where(value == red, (green - blue) / safe, sixth) + 6 * shift
    k = torch.cat([(channel + sixth) % 6 for channel in (5, 3, 1)], dim=1)
    return value - chroma * torch.minimum(k, 4 - k).clamp(0, 1)


def cut_out(views: Tensor, cutout: Tensor) -> Tensor:
    """Zero a rectangle of each view."""
    place = torch.arange(views.shape[2], device=views.device)
    y0, x0, h, w = (cutout[:, k].view(-1, 1, 1, 1) for k in range(4))
    y, x = place.view(1, 1, -1, 1), place.view(1, 1, 1, -1)
    return views.masked_fill((y >= y0) & (y < y0 + h) & (x >= x0) & (x < x0 + w), 0.0)
