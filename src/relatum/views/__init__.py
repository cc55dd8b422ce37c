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

__all__ = ["BACKENDS", "POLICIES", "Policy", "ViewParams", "Views", "backend_for", "make_views", "sample"]

BACKENDS = KERNELS


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
    out: Tensor | None = None,
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
        out: a tensor to fill and return, with the shape and layout of the result (numba only). Reusing one saves the
            page faults of new memory, which take as much time as the views.
        threads: the largest number of threads (numba only).
        channels_last: memory layout of the result.
    """
    import torch

    if backend not in BACKENDS:
        raise unknown("backend", backend, BACKENDS)
    device = images.device.type if isinstance(images, torch.Tensor) else "cpu"
    if backend == "auto":
        backend = backend_for(device)
    if backend == "torch":
        from relatum.views import tensor

        batch = (
            images if isinstance(images, torch.Tensor) else torch.from_numpy(np.asarray(images)[np.asarray(sources)])
        )
        index = torch.as_tensor(sources, device=batch.device) if isinstance(images, torch.Tensor) else None
        views = tensor.make_views(batch, index, params.to(batch.device), side, mean, std)
        return views.contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
    array = images.numpy() if isinstance(images, torch.Tensor) else images
    numbers = np.asarray(sources)
    if backend == "reference":
        from relatum.views import reference

        views = torch.from_numpy(reference.make_views(array, numbers, params, side, mean, std))
        return views.contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
    from relatum.views import compiled

    buffer = None if out is None else out.numpy()
    result = compiled.make_views(array, numbers, params, side, mean, std, buffer, threads, channels_last)
    return torch.from_numpy(result) if out is None else out
