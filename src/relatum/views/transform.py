"""`Views`: the random views of relatum for a custom training loop.

Called with one image it is a transform for any `Dataset`: K tensors (3, side, side), which a `DataLoader` collates to K
tensors (M, 3, side, side), as objectives take them. Called with a whole mini-batch of pixels it makes all views in one
fused pass: (K, M, 3, side, side).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relatum import registry
from relatum.errors import InputError, require_channels, unknown
from relatum.views.params import sample
from relatum.views.policies import POLICIES, Policy

if TYPE_CHECKING:
    from torch import Tensor


class Views:
    """K random, normalised views of an image or of a mini-batch of images.

    Args:
        policy: name of an augmentation policy (`relatum.views.POLICIES`), or a `Policy`.
        number: K, views per image.
        side: height and width of a view in pixels; by default the side of the image, which must be square.
        mean: mean per channel, of colours in [0, 1].
        std: standard deviation per channel.
        pad: zero padding of the padded crop; by default an eighth of the image's side.
        seed: base of all draws, which then depend on the seed and on what is passed to `batch`: without its `indices`
            and `epoch`, all images of a Dataset get the same draws. By default draws come from torch's generator:
            `torch.manual_seed` makes them repeatable, and the workers of a DataLoader differ.
        backend: implementation: `auto`, `numba`, `torch` or `reference`.

    Example:
        >>> dataset = torchvision.datasets.ImageFolder("photos", transform=relatum.views.Views(number=4, side=64))
        >>> for views, _ in torch.utils.data.DataLoader(dataset, batch_size=64):  # views: 4 tensors (64, 3, 64, 64)
        ...     loss, metrics = objective(views)
    """

    def __init__(
        self,
        policy: str | Policy = "relational",
        *,
        number: int = 2,
        side: int | None = None,
        mean: Sequence[float] = (0.5, 0.5, 0.5),
        std: Sequence[float] = (0.25, 0.25, 0.25),
        pad: int | None = None,
        seed: int | None = None,
        backend: str = "auto",
    ) -> None:
        _check_whole("number", number, 1, "an image needs at least one view")
        _check_whole("side", side, 1)
        _check_whole("pad", pad, 0)
        _check_whole("seed", seed, -(2**63))
        if seed is not None and seed >= 2**63:
            raise InputError(f"seed = {seed} is out of range: it must be below 2**63.")
        if backend not in registry.KERNELS:
            raise unknown("backend", backend, registry.KERNELS)
        known = replace(policy) if isinstance(policy, Policy) else registry.find(POLICIES, "policy", policy)
        self.policy: Policy = known
        self.number, self.side, self.pad = number, side, pad
        # The kernels index them without checks. A deviation of zero would give infinite views.
        self.mean, self.std = require_channels("mean", mean), require_channels("std", std)
        self.seed, self.backend = seed, backend

    def __call__(self, image: Any) -> Any:
        """The views of one image, or of a mini-batch.

        Args:
            image: a Pillow image (read as `relatum.embed` does: upright, transparency on white) or an array (H, W, 3)
                of uint8; or a mini-batch (M, H, W, 3) as array or tensor.

        Returns:
            For one image a list of K tensors (3, side, side); for a mini-batch a tensor (K, M, 3, side, side).
        """
        if hasattr(image, "convert"):  # Pillow
            from relatum.system.modes import as_rgb

            image = as_rgb(image)
        if getattr(image, "ndim", 0) == 4:
            return self.batch(image)
        if not hasattr(image, "shape"):
            raise InputError(f"views need a Pillow image or an array, not a {type(image).__name__}.")
        if len(image.shape) != 3 or image.shape[2] != 3:
            raise InputError(
                f"views need an image (H, W, 3) or a mini-batch (M, H, W, 3), not shape {tuple(image.shape)}."
            )
        return list(self.batch(image[None])[:, 0].unbind(0))

    def batch(self, images: NDArray[np.uint8] | Tensor, *, indices: Any = None, epoch: int = 0) -> Tensor:
        """The views of a mini-batch in one pass: (K, M, 3, side, side) float32.

        Args:
            images: (M, H, W, 3) uint8, an array or a tensor on any device.
            indices: (M,) numbers of the images in the dataset; by default 0 to M - 1. With a `seed`, a view is a pure
                function of seed, epoch, index and view number, whatever the mini-batch around it.
            epoch: the epoch.
        """
        import torch

        from relatum.views import make_views

        if not hasattr(images, "dtype"):
            raise InputError(f"views need an array or a tensor of shape (M, H, W, 3), not a {type(images).__name__}.")
        if str(images.dtype).removeprefix("torch.") != "uint8" or images.ndim != 4 or images.shape[3] != 3:
            shape = tuple(images.shape)
            raise InputError(f"views need uint8 pixels of shape (M, H, W, 3), not {images.dtype} {shape}.")
        count, height, width = (int(n) for n in images.shape[:3])
        if not height or not width:
            raise InputError(f"an image of {width} × {height} pixels has no pixels.")
        _check_whole("epoch", epoch, -(2**63))
        if self.side is None and height != width:
            raise InputError(
                f"an image of {width} × {height} pixels is not square: give the side of the views, side=..."
            )
        side = self.side or height
        seed = int(torch.randint(2**62, (), device="cpu").item()) if self.seed is None else self.seed
        numbers = np.arange(count) if indices is None else np.asarray(indices)
        if numbers.shape != (count,) or numbers.dtype.kind not in "iu":
            raise InputError(
                f"indices must be {count} whole numbers, one of each image, not {numbers.dtype} {numbers.shape}."
            )
        params = sample(
            self.policy,
            seed=seed,
            epoch=epoch,
            indices=numbers,
            views=self.number,
            height=height,
            width=width,
            pad=height // 8 if self.pad is None else self.pad,
            side=side,
        )
        sources = np.tile(np.arange(count), self.number)
        views = make_views(
            images, sources, params, side=side, mean=self.mean, std=self.std, backend=self.backend, channels_last=False
        )
        return views.reshape(self.number, count, *views.shape[1:])

    def __repr__(self) -> str:
        name = next((name for name, policy in POLICIES.items() if policy == self.policy), "custom")
        return f"Views({name!r}, number={self.number}, side={self.side})"


def _check_whole(name: str, value: Any, least: int, reason: str = "") -> None:
    if value is None:
        return
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise InputError(f"{name} = {value!r} is not a whole number.")
    if value < least:
        raise InputError(f"{name} = {value} is out of range: {reason or f'it must be at least {least}'}.")
