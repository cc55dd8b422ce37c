"""Preprocessing of pixels: `Transform` for one image, `Preprocess` as a part of an exported network.

`Preprocess` repeats Pillow's bicubic resize of the largest central square bit for bit, so that an exported network
gives the vectors of `relatum embed`. Pillow first averages blocks of pixels of an image that is much larger than the
result (`reducing_gap`), then resizes with weights in 22-bit fixed point, horizontally first, and rounds to bytes after
each of the three steps. The JPEG decoder's reduction of a large file comes before the pixels and cannot be repeated
here: ask Pillow for it with `image.draft(None, (2 * side, 2 * side))`, as relatum does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from relatum.data import read_images

_FIXED_POINT = 2.0**22
_GAP = 3  # Pillow's `reducing_gap`: blocks are averaged until the image is between three and six times the result
_REACH = 1.5  # pixels of the result that a bicubic filter reaches beyond the square
_MORE = 32  # blocks beyond the square: twice the reach of 1.5 times 6, and rounding


class Transform:
    """One image as a network takes it: cut to its central square, resized and normalised; (3, side, side) float32.

    Args:
        side: height and width in pixels.
        mean: mean per channel, of colours in [0, 1].
        std: standard deviation per channel.
    """

    def __init__(self, side: int, mean: Sequence[float], std: Sequence[float]) -> None:
        self.side, self.mean, self.std = side, tuple(mean), tuple(std)

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> Transform:
        """The transform that belongs to weights with this metadata."""
        return cls(info.get("side") or 32, info.get("mean") or (0.5,) * 3, info.get("std") or (0.25,) * 3)

    def __call__(self, image: Any) -> Tensor:
        """The input for a path, a Pillow image, an array (H, W, 3) or a tensor (3, H, W)."""
        pixels = torch.from_numpy(read_images([image], side=self.side).images[0])
        x = pixels.permute(2, 0, 1).float().div(255)
        return (x - torch.tensor(self.mean).view(3, 1, 1)) / torch.tensor(self.std).view(3, 1, 1)

    def __repr__(self) -> str:
        return f"Transform(side={self.side}, mean={self.mean}, std={self.std})"


class Preprocess(nn.Module):
    """Pixels (N, H, W, 3) uint8 of any size to representations: resize, normalise, network.

    Args:
        network: maps (N, 3, side, side) to (N, d).
        transform: side and normalisation.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, transform: Transform) -> None:
        super().__init__()
        self.network, self.side = network, transform.side
        self.register_buffer("mean", torch.tensor(transform.mean).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(transform.std).view(1, 3, 1, 1))

    def forward(self, pixels: Tensor) -> Tensor:
        """The representations, (N, d)."""
        x = pixels.permute(0, 3, 1, 2).to(torch.int32)
        height, width = (torch.ones_like(line).cumsum(0)[-1].double() for line in (x[0, 0, :, 0], x[0, 0, 0, :]))
        edge = torch.minimum(height, width)
        factor = torch.floor(edge / self.side / _GAP).clamp(min=1.0)
        rows, columns = (self._cells(size, edge, factor) for size in (height, width))
        reduced = _averages(x, rows, columns)
        reduced = _to_bytes(reduced @ self._weights(width, edge, factor, columns).T)
        reduced = _to_bytes(self._weights(height, edge, factor, rows) @ reduced)
        return self.network((reduced.float() / 255 - self.mean) / self.std)  # type: ignore[no-any-return]

    def _start(self, size: Tensor, edge: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
        """The first pixel that the central square's filters reach, and the one after the last."""
        first = (size - edge) / 2
        scale = edge / self.side
        reach = torch.where(factor > 1, _REACH * scale, 2 * scale.clamp(min=1.0) + 1)
        return torch.floor(first - reach).clamp(min=0.0), torch.minimum(torch.ceil(first + edge + reach), size)

    def _cells(self, size: Tensor, edge: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
        """(C,) first pixel of each block of `factor` pixels, and (C,) the one after its last; blocks may be empty."""
        start, end = self._start(size, edge, factor)
        number = torch.arange(_GAP * 2 * self.side + _MORE, dtype=torch.float64, device=size.device)
        first, last = (torch.minimum(start + (number + more) * factor, end).long() for more in (0, 1))
        return first, last

    def _weights(self, size: Tensor, edge: Tensor, factor: Tensor, cells: tuple[Tensor, Tensor]) -> Tensor:
        """(side, C) weights of one direction, as Pillow computes them for the central square of `edge` pixels."""
        start, _ = self._start(size, edge, factor)
        # Pillow passes the square's borders as float32.
        low, high = (((size - edge) / 2 + shift - start).div(factor).float() for shift in (0, edge))
        scale = (high - low).double() / self.side
        output = torch.arange(self.side, dtype=torch.float64, device=size.device) + 0.5
        centre = low.double() + output * scale
        pixel = torch.arange(cells[0].shape[0], dtype=torch.float64, device=size.device) + 0.5
        weights = _bicubic((pixel[None, :] - centre[:, None]) / scale.clamp(min=1.0))
        weights = torch.where((cells[1] > cells[0])[None, :], weights, torch.zeros_like(weights))
        weights = weights / weights.sum(1, keepdim=True)
        return torch.sign(weights) * torch.floor(weights.abs() * _FIXED_POINT + 0.5) / _FIXED_POINT


def _averages(x: Tensor, rows: tuple[Tensor, Tensor], columns: tuple[Tensor, Tensor]) -> Tensor:
    """The mean of each block of pixels, (N, 3, C, C) whole numbers as float64: Pillow's `Image.reduce`."""
    sums = _sums(_sums(x, columns, 3), rows, 2).double()
    (top, bottom), (left, right) = rows, columns
    count = ((bottom - top)[:, None] * (right - left)[None, :]).clamp(min=1).double()
    # Pillow multiplies by a reciprocal in 24-bit fixed point, which it computes in float32.
    reciprocal = torch.floor((2.0**32 / (256 * count).float()).double())
    return torch.floor((sums + torch.floor(count / 2)) * reciprocal / 2.0**24)


def _sums(x: Tensor, cells: tuple[Tensor, Tensor], dim: int) -> Tensor:
    """Sums over the cells of one dimension, as differences of cumulative sums."""
    total = x.cumsum(dim, dtype=torch.int32)
    shape = [1] * 4
    shape[dim] = cells[0].shape[0]

    def until(place: Tensor) -> Tensor:
        part = total.index_select(dim, (place - 1).clamp(min=0))
        return torch.where((place > 0).view(shape), part, torch.zeros_like(part))

    return until(cells[1]) - until(cells[0])


def _bicubic(x: Tensor) -> Tensor:
    """Pillow's bicubic filter, a = -1/2."""
    x = x.abs()
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


def _to_bytes(x: Tensor) -> Tensor:
    return torch.floor(x + 0.5).clamp(0, 255)
