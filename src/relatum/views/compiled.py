"""Fused views on the CPU: every view of a batch from the uint8 image to the network's input in one pass.

The kernels are in `relatum.kernels.views`. Rows are made in chunks of fixed size by a pool of threads; a row depends
on nothing but its own parameters, so the bits do not depend on the number of threads or on the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from relatum.errors import InputError
from relatum.kernels import views as kernels
from relatum.kernels.threads import run_chunks
from relatum.views.params import ARRAYS, ViewParams

_CHUNK_PIXELS = 128 * 1024  # per chunk: 128 views of 32 x 32, some 0.4 ms, so that handing out a chunk costs nothing


def make_views(
    images: NDArray[np.uint8],
    sources: NDArray[np.int64],
    params: ViewParams,
    side: int,
    mean: Sequence[float],
    std: Sequence[float],
    out: NDArray[np.float32] | None = None,
    threads: int | None = None,
    channels_last: bool = True,
) -> NDArray[np.float32]:
    """All views of a batch.

    Args:
        images: (N, H, W, 3) uint8, an array or a memory map.
        sources: (V,) the image of each view.
        params: V rows from `relatum.views.sample`.
        side: of the views.
        mean: per channel, of colours in [0, 1].
        std: per channel.
        out: a buffer to fill and return, of the shape and layout that would be returned. Reusing one saves the page
            faults of a fresh 25 MB (as much time again as the views themselves).
        threads: at most so many; all cores by default.
        channels_last: whether the memory is (V, side, side, 3), which a channels-last network eats as it is.

    Returns:
        (V, 3, side, side) float32; with `channels_last` a transposed view of (V, side, side, 3) memory.
    """
    count = len(params)
    images = _check(images, sources, count)
    if out is None:
        out = empty(count, side, channels_last)
    memory = out.transpose(0, 2, 3, 1) if channels_last else out
    if out.shape != (count, 3, side, side) or out.dtype != np.float32 or not memory.flags.c_contiguous:
        raise ValueError(f"out must be float32 of shape {(count, 3, side, side)} in the layout asked for")
    scale = (1 / np.asarray(std, np.float64)).astype(np.float32)
    offset = (-np.asarray(mean, np.float64) / np.asarray(std, np.float64)).astype(np.float32)
    flat = memory.reshape(-1)
    data, (height, width) = images.reshape(-1), images.shape[1:3]
    sources = np.ascontiguousarray(sources, np.int64)

    arrays = [np.ascontiguousarray(getattr(params, name)) for name in ARRAYS]

    def work(start: int, stop: int) -> None:
        kernels.make_rows(data, height, width, sources, *arrays, scale, offset, side, channels_last, flat, start, stop)

    rows = max(_CHUNK_PIXELS // (side * side), 1)
    run_chunks(work, [(start, min(start + rows, count)) for start in range(0, count, rows)], threads)
    return out


def empty(count: int, side: int, channels_last: bool = True) -> NDArray[np.float32]:
    """A buffer for `make_views`, (count, 3, side, side) at a 64-byte boundary: a straddling store costs twice."""
    size = count * 3 * side * side
    raw = np.empty(size + 16, np.float32)
    skip = -(raw.ctypes.data // 4) % 16
    memory = raw[skip : skip + size]
    if channels_last:
        return memory.reshape(count, side, side, 3).transpose(0, 3, 1, 2)
    return memory.reshape(count, 3, side, side)


def _check(images: NDArray[np.uint8], sources: NDArray[np.int64], count: int) -> NDArray[np.uint8]:
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3:
        raise InputError(f"views are made from uint8 images of shape (N, H, W, 3), not {images.dtype} {images.shape}.")
    if len(sources) != count:
        raise ValueError(f"{len(sources)} sources for {count} rows of parameters")
    if count and not (int(np.min(sources)) >= 0 and int(np.max(sources)) < len(images)):
        raise IndexError(f"sources must lie in [0, {len(images)})")
    return np.ascontiguousarray(images).view(np.ndarray)
