"""K random views of each image, in two steps: `sample` draws the parameters, `make_views` applies them.

`policies` are the named chains of transformations, `params` draws their parameters. Three implementations turn the same
parameters into the same pixels: `reference` (the readable specification), `compiled` (numba, CPU) and `tensor` (torch,
any device). numba and torch are not imported before the first view is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relatum.errors import unknown
from relatum.kernels import numba_available
from relatum.registry import KERNELS
from relatum.views.params import ViewParams, sample
from relatum.views.policies import POLICIES, Policy
from relatum.views.transform import Views

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["POLICIES", "Policy", "ViewParams", "Views", "backend_for", "make_views", "sample"]


def backend_for(device: str = "cpu") -> str:
    """The backend that `auto` selects for images on a device: `numba` or `torch`."""
    return "numba" if device == "cpu" and numba_available() else "torch"


def make_views(
    images: NDArray[np.uint8] | Tensor,
    sources: Any,
    params: ViewParams,
    *,
    side: int,
    mean: Sequence[float],
    std: Sequence[float],
    backend: str = "auto",
    threads: int | None = None,
    channels_last: bool = True,
) -> Tensor:
    """All views of a batch, normalised: (V, 3, side, side) float32 where the images are.

    Args:
        images: (N, H, W, 3) uint8: an array, a memory map, or a tensor on any device.
        sources: (V,) the image of each view: views of one slot may come from different images.
        params: V rows from `sample`.
        side: height and width of the views.
        mean: mean per channel, of colours in [0, 1].
        std: standard deviation per channel.
        backend: `numba` (CPU), `torch` (any device), `reference` (slow), or `auto`: the fastest one available.
        threads: the largest number of threads (numba only).
        channels_last: memory layout of the result.
    """
    import torch

    if backend not in KERNELS:
        raise unknown("backend", backend, KERNELS)
    if backend == "auto":
        backend = backend_for(images.device.type if isinstance(images, torch.Tensor) else "cpu")
    if backend == "torch":
        from relatum.views import tensor

        if isinstance(images, torch.Tensor):
            batch, index = images, torch.as_tensor(sources, device=images.device)
        else:
            batch, index = torch.from_numpy(np.asarray(images)[np.asarray(sources)]), None
        views = tensor.make_views(batch, index, params.to(batch.device), side, mean, std)
    else:
        array = images.numpy() if isinstance(images, torch.Tensor) else images
        arguments = (array, np.asarray(sources), params, side, mean, std)
        if backend != "reference":
            from relatum.views import compiled

            return torch.from_numpy(compiled.make_views(*arguments, threads, channels_last))
        from relatum.views import reference

        views = torch.from_numpy(reference.make_views(*arguments))
    return views.contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
