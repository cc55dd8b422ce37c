"""From pixels to the network's input: `Transform` for one image, `Preprocess` as a part of an exported network.

`Preprocess` repeats Pillow's bicubic resize of the largest central square bit for bit (weights in 22-bit fixed point,
horizontally first, rounded to bytes after each direction), so that an exported network gives the vectors of `relatum
embed`. Two shortcuts for large files are not repeated: the JPEG decoder's reduction (from four times the side on; ask
Pillow for it with `image.draft("RGB", (2 * side, 2 * side))`), and Pillow's box reduction (from six times the side on).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from relatum.data import read_images

_FIXED_POINT = 2.0**22


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
        x = pixels.permute(0, 3, 1, 2).double()
        height, width = (torch.ones_like(line).cumsum(0)[-1] for line in (x[0, 0, :, 0], x[0, 0, 0, :]))
        edge = torch.minimum(height, width)
        x = _to_bytes(x @ self._weights(x[0, 0, 0, :], width, edge).T)
        x = _to_bytes(self._weights(x[0, 0, :, 0], height, edge) @ x)
        return self.network((x.float() / 255 - self.mean) / self.std)  # type: ignore[no-any-return]

    def _weights(self, line: Tensor, size: Tensor, edge: Tensor) -> Tensor:
        """(side, size) weights of one direction, as Pillow computes them for the central square of `edge` pixels."""
        pixel = torch.ones_like(line).cumsum(0) - 0.5  # centres of the pixels of the whole line
        output = torch.arange(self.side, dtype=torch.float64, device=line.device) + 0.5
        scale = edge / self.side
        centre = (size - edge) / 2 + output * scale
        weights = _bicubic((pixel[None, :] - centre[:, None]) / scale.clamp(min=1.0))
        weights = weights / weights.sum(1, keepdim=True)
        return torch.sign(weights) * torch.floor(weights.abs() * _FIXED_POINT + 0.5) / _FIXED_POINT


def _bicubic(x: Tensor) -> Tensor:
    """Pillow's bicubic filter, a = -1/2."""
    x = x.abs()
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


def _to_bytes(x: Tensor) -> Tensor:
    return torch.floor(x + 0.5).clamp(0, 255)
