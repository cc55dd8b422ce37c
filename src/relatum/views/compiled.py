"""Views on the CPU by a compiled kernel: from the uint8 images to the network's input in one pass.

This module checks the arguments and distributes the work; the kernel is `relatum.kernels.views.make_rows`, and
`relatum.views.reference` is its readable specification. A pool of threads computes chunks of fixed size. A view depends
only on its image and its row of parameters, so its bits do not depend on the number of threads or on the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from relatum.errors import InputError
from relatum.kernels import views as kernels
from relatum.kernels.threads import run_chunks
from relatum.views.params import ARRAYS, ViewParams

_CHUNK_PIXELS = 128 * 1024  # per chunk: 128 views of 32 × 32, about 0.4 ms of work


def make_views(
    images: NDArray[np.uint8],
    sources: NDArray[np.int64],
    params: ViewParams,
    side: int,
    mean: Sequence[float],
    std: Sequence[float],
    threads: int | None = None,
    channels_last: bool = True,
) -> NDArray[np.float32]:
    """All views of a batch.

    Args:
        images: (N, H, W, 3) uint8, an array or a memory map.
        sources: (V,) the image of each view.
        params: V rows from `relatum.views.sample`.
        side: height and width of the views.
        mean: mean per channel, of colours in [0, 1].
        std: standard deviation per channel.
        threads: the largest number of threads; by default the number of cores.
        channels_last: whether the memory layout is (V, side, side, 3).

    Returns:
        (V, 3, side, side) float32; with `channels_last` a transposed view of (V, side, side, 3) memory.
    """
    count = len(params)
    images = _check(images, sources, count)
    flat = _aligned(count * 3 * side * side)
    scale = (1 / np.asarray(std, np.float64)).astype(np.float32)
    offset = (-np.asarray(mean, np.float64) / np.asarray(std, np.float64)).astype(np.float32)
    data, (height, width) = images.reshape(-1), images.shape[1:3]
    sources = np.ascontiguousarray(sources, np.int64)

    arrays = [np.ascontiguousarray(getattr(params, name)) for name in ARRAYS]

    def work(start: int, stop: int) -> None:
        kernels.make_rows(data, height, width, sources, *arrays, scale, offset, side, channels_last, flat, start, stop)

    rows = max(_CHUNK_PIXELS // (side * side), 1)
    run_chunks(work, [(start, min(start + rows, count)) for start in range(0, count, rows)], threads)
    if channels_last:
        return flat.reshape(count, side, side, 3).transpose(0, 3, 1, 2)
    return flat.reshape(count, 3, side, side)


def _aligned(size: int) -> NDArray[np.float32]:
    """Memory that begins at a multiple of 64 bytes: stores within a cache line are faster."""
    raw = np.empty(size + 16, np.float32)
    skip = -(raw.ctypes.data // 4) % 16
    return raw[skip : skip + size]


def _check(images: NDArray[np.uint8], sources: NDArray[np.int64], count: int) -> NDArray[np.uint8]:
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
        raise InputError(f"views need uint8 images of shape (N, H, W, 3), not {images.dtype} {images.shape}.")
    if len(sources) != count:
        raise ValueError(f"{len(sources)} sources for {count} rows of parameters")
    if count and not (int(np.min(sources)) >= 0 and int(np.max(sources)) < len(images)):
        raise IndexError(f"sources must lie in [0, {len(images)})")
    return np.ascontiguousarray(images).view(np.ndarray)
