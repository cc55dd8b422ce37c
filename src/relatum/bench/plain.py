"""The baseline of the benchmarks: a straightforward implementation, simple but efficient, for a fair comparison.

`PillowChain` is the relational chain on Pillow images, one view at a time, rounding to uint8 after each step as Pillow
does: one call crops and resizes, `ImageEnhance` jitters, hue is turned in Pillow's own HSV mode. It takes about half
the time of the usual library's chain, and works as the transform of a `torch.utils.data.Dataset`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageEnhance
from torch import Tensor
from torch.utils.data import Dataset


class PillowChain:
    """The relational chain: a uint8 (H, W, 3) image to a normalised (3, side, side) tensor.

    Args:
        side: of the views.
        mean: per channel.
        std: per channel.
    """

    def __init__(self, side: int, mean: Sequence[float], std: Sequence[float]) -> None:
        self.side = side
        self.scale = torch.tensor([1 / (255 * s) for s in std]).view(3, 1, 1)
        self.offset = torch.tensor([-m / s for m, s in zip(mean, std, strict=True)]).view(3, 1, 1)

    def __call__(self, image: NDArray[np.uint8]) -> Tensor:
        """One random view."""
        view = Image.fromarray(image)
        x, y, w, h = random_box(view.width, view.height)
        view = view.resize((self.side, self.side), Image.Resampling.BILINEAR, box=(x, y, x + w, y + h))
        if random.random() < 0.5:
            view = view.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        if random.random() < 0.8:
            view = jitter(view)
        if random.random() < 0.2:
            view = view.convert("L").convert("RGB")
        pixels = torch.from_numpy(np.array(view)).permute(2, 0, 1)
        return pixels * self.scale + self.offset


def random_box(width: int, height: int) -> tuple[int, int, int, int]:
    """x, y, width and height of a random resized crop."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side


def jitter(view: Image.Image) -> Image.Image:
    """Brightness, contrast, saturation and hue in random order."""
    for step in random.sample(range(4), 4):
        if step == 0:
            view = ImageEnhance.Brightness(view).enhance(random.uniform(0.2, 1.8))
        elif step == 1:
            view = ImageEnhance.Contrast(view).enhance(random.uniform(0.2, 1.8))
        elif step == 2:
            view = ImageEnhance.Color(view).enhance(random.uniform(0.2, 1.8))
        else:
            h, s, v = view.convert("HSV").split()
            turned = np.array(h) + np.uint8(round(random.uniform(-0.2, 0.2) * 255) % 256)  # wraps around, as hue does
            view = Image.merge("HSV", (Image.fromarray(turned), s, v)).convert("RGB")
    return view


class PlainViews(Dataset[Tensor]):
    """Item n is K views of image n, (K, 3, side, side): what a `DataLoader` of the plain loop reads.

    Args:
        images: (N, H, W, 3) uint8.
        views: K.
        chain: makes one view of one image.
    """

    def __init__(self, images: NDArray[np.uint8], views: int, chain: PillowChain) -> None:
        self.images, self.views, self.chain = images, views, chain

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        image = self.images[index]
        return torch.stack([self.chain(image) for _ in range(self.views)])
