"""One image to K views. Sample parameters, then apply them: two functions, and nothing stored between them.

`policies` (named chains as data) · `params` (sample) · `reference` (the specification) · `cpu` (fused kernel)
· `tensor` (batched torch, any device): same parameters in, same pixels out. Neither numba nor torch is imported before
a view is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relatum.errors import unknown
from relatum.kernels import numba_available
from relatum.views.params import ViewParams, sample
from relatum.views.policies import POLICIES, Policy

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["BACKENDS", "POLICIES", "Policy", "ViewParams", "backend_for", "make_views", "sample"]

BACKENDS = ("auto", "numba", "torch", "reference")


def backend_for(device: str = "cpu") -> str:
    """What `auto` means for images on a device: `numba` or `torch`."""
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
        side: of the views.
        mean: per channel, of colours in [0, 1].
        std: per channel.
        backend: `numba` (fused, CPU), `torch` (batched, any device), `reference` (slow), or `auto`: the fastest there.
        out: a tensor to fill and return, of the shape and layout that would be returned (numba only). Reusing one
            saves the page faults of fresh memory, which cost as much as the views.
        threads: at most so many (numba).
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
    from relatum.views import compiled as cpu

    buffer = None if out is None else out.numpy()
    made = cpu.make_views(array, numbers, params, side, mean, std, buffer, threads, channels_last)
    return torch.from_numpy(made) if out is None else out
