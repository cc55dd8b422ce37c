"""Subsets of arrays that are too large to copy into memory.

STL-10's 100,000 unlabelled images are a memory map of 2.7 GB. Selecting images by index makes a copy; a copy of more
than 1 GB is written to an unnamed temporary file in the cache folder instead of memory.
"""

from __future__ import annotations

import tempfile

import numpy as np
from numpy.typing import NDArray

from relatum.data.paths import cache_dir

_LARGE = 1 << 30  # bytes
_CHUNK = 1024  # images copied at a time


def take(images: NDArray[np.uint8], indices: NDArray[np.int64]) -> NDArray[np.uint8]:
    """`images[indices]`: a view if the indices are consecutive, a memory map on disk if the copy is large."""
    if len(indices) and indices[0] >= 0 and np.array_equal(indices, np.arange(indices[0], indices[0] + len(indices))):
        return images[int(indices[0]) : int(indices[0]) + len(indices)]
    shape = (len(indices), *images.shape[1:])
    if not isinstance(images, np.memmap) or np.prod(shape, dtype=np.int64) < _LARGE:
        return np.asarray(images[indices])
    with tempfile.TemporaryFile(dir=cache_dir()) as file:  # the memory map keeps the file open
        part: NDArray[np.uint8] = np.memmap(file, np.uint8, "w+", shape=shape)
    for start in range(0, len(indices), _CHUNK):
        part[start : start + _CHUNK] = images[indices[start : start + _CHUNK]]
    return part
